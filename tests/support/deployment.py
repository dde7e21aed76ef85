"""Whole deployments as a person starts them: processes with ports, folders and marks of their own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pallas.simulate import LedgerReport, Options, run
from tests.support.family import Family
from tests.support.processes import PallasProcess
from tests.support.valkey import free_ports
from tests.support.waiting import block_until

HUB_TOKEN = "hub-token-of-the-test"
ONEBOT_TOKEN = "onebot-token-of-the-test"
FAST = {
    "PALLAS_TESTING": "1",
    "PALLAS_LEASE_S": "1.5",
    "PALLAS_REDIS_DEAD_AFTER_MS": "1000",
    "PALLAS_PRESENCE_PURGE_S": "6",
    "PALLAS_PRESENCE_REFRESH_S": "1",
    "PALLAS_DRAIN_GRACE_S": "3",
}
"""Times short enough for tests; everything keeps its order."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class Site:
    """One machine's worth of deployment: a folder, a block of ports, an environment; commands are started on it."""

    folder: Path
    family: Family
    environment: dict[str, str]
    hub_port: int = 0
    worker_port: int = 0
    _started: list[PallasProcess] = field(default_factory=list)
    _loads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, "load"))

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def hub_url(self) -> str:
        return f"http://127.0.0.1:{self.hub_port}"

    def worker_url(self, shard: int) -> str:
        """Base of a worker's plain pages."""
        return f"http://127.0.0.1:{self.worker_port + shard}"

    def start(self, name: str, *arguments: str, **environment: str) -> PallasProcess:
        """Start `pallas ARGUMENTS`; it is ended with the site."""
        everything = {**self.family.environment, **self.environment, **environment}
        process = PallasProcess(arguments, everything, self.folder, name)
        self._started.append(process)
        return process

    def up(self, workers: int, *more: str, name: str = "up") -> PallasProcess:
        """`pallas up`, ready."""
        process = self.start(name, "up", "--workers", str(workers), "--json", "--app", "pallas.demo:app", *more)
        block_until(lambda: self._says_ready(process), 30, saying=f"{name} is ready")
        return process

    @staticmethod
    def _says_ready(process: PallasProcess) -> bool:
        assert process.exit_code is None, f"{process!r} ended while starting:\n{process.output()}"
        return ready_line(process) is not None

    def demo(self, *arguments: str, timeout: float = 60.0) -> dict[str, Any]:
        """`pallas demo --json` on this site: its ledger. Fails where it ended with another code than 0."""
        process = self.start(f"demo-{len(self._started)}", "demo", "--json", *arguments)
        code = ended(process, timeout)
        assert code == 0, f"demo ended with {code}:\n{process.output()}"
        return ledger(process)

    def load(self, workers: int, **options: Any) -> Future[LedgerReport]:
        """The same accounts from this process, with options the command has not; it goes on while others look."""
        urls = tuple(f"ws://127.0.0.1:{self.worker_port + shard}/onebot/v11/ws" for shard in range(workers))
        chosen = Options(urls=urls, token=ONEBOT_TOKEN, **options)
        return self._loads.submit(lambda: asyncio.run(run(chosen)))

    def close(self) -> None:
        """End what was started here, politely, so that it ends its own children."""
        running = [process for process in self._started if process.exit_code is None]
        for process in running:
            process.send(signal.SIGTERM)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            process.kill()
        self._loads.shutdown()


@contextlib.contextmanager
def site(folder: Path, **environment: str) -> Iterator[Site]:
    """A site whose processes all end with the block; ports are free, tokens set, times short."""
    base = free_ports(12)
    folder.mkdir(parents=True, exist_ok=True)
    with Family(folder) as family:
        here = Site(folder, family, {}, hub_port=base, worker_port=base + 1)
        here.environment = {
            **FAST,
            "PALLAS_DATA_DIR": str(here.data),
            "PALLAS_HUB_PORT": str(base),
            "PALLAS_WORKER_PORT": str(base + 1),
            "PALLAS_HUB_TOKEN": HUB_TOKEN,
            "PALLAS_ONEBOT_TOKEN": ONEBOT_TOKEN,
            "PALLAS_LOG_FORMAT": "json",
            **environment,
        }
        try:
            yield here
        finally:
            here.close()


def ready_line(process: PallasProcess) -> dict[str, Any] | None:
    """What `pallas up --json` prints once all is ready: hub, workers and pids."""
    return next((line for line in json_lines(process) if "pids" in line), None)


def ledger(process: PallasProcess) -> dict[str, Any]:
    """The last thing `pallas demo --json` printed."""
    found = [line for line in json_lines(process) if "physical" in line]
    assert found, f"no ledger in:\n{process.output()}"
    return found[-1]


def json_lines(process: PallasProcess) -> Iterator[dict[str, Any]]:
    """Its output lines that are JSON objects: log events and results."""
    for line in process.log.read_text("utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found


def events(process: PallasProcess, name: str) -> list[dict[str, Any]]:
    """Its log events of this name."""
    return [line for line in json_lines(process) if line.get("event") == name]


def ended(process: PallasProcess, timeout: float = 20.0) -> int:
    """Its exit code, once it has ended by itself."""
    block_until(lambda: process.exit_code is not None, timeout, saying=f"{process!r} ends")
    return process.wait()


def get(url: str, token: str = "") -> tuple[int, str]:
    """Status and body; status 0 where nobody answers."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with _OPENER.open(request, timeout=3) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except (OSError, http.client.HTTPException):
        return 0, ""


def is_ready(base: str) -> bool:
    """Whether the process behind `base` says it is ready."""
    return get(f"{base}/readyz")[0] == 200


def api(here: Site, what: str) -> dict[str, Any]:
    """A reading of the hub's API."""
    status, body = get(f"{here.hub_url}/api/v1/{what}", HUB_TOKEN)
    assert status == 200, (status, body)
    found = json.loads(body)
    assert isinstance(found, dict)
    return found


def metric(base: str, name: str) -> float:
    """The sum of a metric's samples on `/metrics`; 0.0 where nobody answers."""
    _, body = get(f"{base}/metrics")
    samples = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", body, re.MULTILINE)
    return sum(float(sample) for sample in samples)


def arguments(**options: object) -> Sequence[str]:
    """`accounts=8` as `--accounts 8`."""
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]
