"""The process lab: workers of one deployment as processes of their own, to be killed, stopped and started again."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pallas.clock import SystemClock
from pallas.simulate import Options
from tests.support.books import StoredBooks, stored_books
from tests.support.deployment import ONEBOT_TOKEN, Site, events, get, is_ready, metric, site
from tests.support.judge import Death, Figures, judge
from tests.support.ledger_bot import FOLDER, PAUSE
from tests.support.processes import PallasProcess
from tests.support.runs import Run, read_runs
from tests.support.traffic import Traffic
from tests.support.waiting import StillFalseError, block_until

LEASE_S = 1.5
ORPHAN_AFTER_S = 3.0
LOOK_S = 0.5
SCALED = {
    "PALLAS_LEASE_S": str(LEASE_S),
    "PALLAS_ORPHAN_AFTER_S": str(ORPHAN_AFTER_S),
    "PALLAS_STANDBY_LOOK_S": str(LOOK_S),
}
REAL = {
    "PALLAS_LEASE_S": "10",
    "PALLAS_ORPHAN_AFTER_S": "30",
    "PALLAS_STANDBY_LOOK_S": "1",
    "PALLAS_REDIS_DEAD_AFTER_MS": "3000",
}


@dataclass(slots=True)
class Lab:
    """Workers by shard, and the timeline of what was done to them; times are the suspend-aware clock's."""

    site: Site
    redis_url: str
    diary: Path
    workers: dict[int, PallasProcess] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)
    _starts: int = 0

    def start(
        self, shard: int, *, bot: str = "quick", fault: str = "", pause_s: float = 0.5, **settings: str
    ) -> PallasProcess:
        """A worker that is about to be there; `wait_ready` waits for it."""
        self._starts += 1
        environment = {FOLDER: str(self.diary), PAUSE: str(pause_s), **settings}
        if fault:
            environment["PALLAS_TEST_FAULT"] = fault
        app = f"tests.support.ledger_bot:{bot}"
        process = self.site.start(
            f"worker-{shard}-{self._starts}", "worker", "--shard-id", str(shard), "--wait", "--app", app, **environment
        )
        self.workers[shard] = process
        return process

    def wait_ready(self, *shards: int) -> None:
        """Wait until these workers take messages."""
        waiting = set(shards)
        block_until(lambda: all(map(self._is_ready, waiting)), 20, saying=f"workers {waiting} are ready")

    def _is_ready(self, shard: int) -> bool:
        process = self.workers[shard]
        assert process.exit_code is None, process.output()
        return is_ready(self.base(shard))

    def base(self, shard: int) -> str:
        """Where a worker's plain pages are."""
        return self.site.worker_url(shard)

    def url(self, shard: int) -> str:
        """Where ends connect to it."""
        return f"ws://127.0.0.1:{self.site.worker_port + shard}/onebot/v11/ws"

    def traffic(self, *shards: int, **options: Any) -> Traffic:
        """A load on these workers: to be used as a context."""
        chosen: dict[str, Any] = {
            "urls": tuple(map(self.url, shards)),
            "accounts": 4,
            "groups": 4,
            "repeats": 0.0,
            "losses": 0.0,
            "chatter": 0.0,
            "renewals": 0.0,
            "spread_s": 0.05,
            "settle_s": 0.3,
            "patience_s": LEASE_S + 3.5,
            "time_scale": 0.1,
            **options,
        }
        return Traffic(Options(token=ONEBOT_TOKEN, **chosen))

    def killed(self, shard: int, *, effects: bool = True, timeout: float = 15.0) -> Death:
        """The death of a worker that its fault kills: when it was seen, within 10 ms."""
        process = self.workers[shard]
        block_until(lambda: process.exit_code is not None, timeout, saying=f"{process!r} is killed by its fault")
        at = self.clock.mono()
        assert process.exit_code == -signal.SIGKILL, process.output()
        return self._died(shard, process.pid, at, effects=effects)

    def kill(self, shard: int, *, effects: bool = True) -> Death:
        """`kill -9` now."""
        process = self.workers[shard]
        process.kill()
        return self._died(shard, process.pid, self.clock.mono(), effects=effects)

    def cut_off(self, shard: int) -> Death:
        """Note that a worker is cut off from now on; `rejoined` notes until when."""
        return self._died(shard, self.workers[shard].pid, self.clock.mono(), effects=True)

    def rejoined(self, death: Death) -> None:
        """Note that it is back."""
        self.deaths[self.deaths.index(death)] = replace(death, until=self.clock.mono())

    def _died(self, shard: int, pid: int, at: float, *, effects: bool) -> Death:
        death = Death(pid, self.url(shard), at, effects)
        self.deaths.append(death)
        return death

    def stop(self, shard: int) -> Death:
        """SIGSTOP now."""
        process = self.workers[shard]
        process.send(signal.SIGSTOP)
        return self._died(shard, process.pid, self.clock.mono(), effects=True)

    def stopped(self, shard: int, timeout: float = 15.0) -> Death:
        """The sleep of a worker that its fault stopped."""
        process = self.workers[shard]
        block_until(lambda: _state(process.pid) == "T", timeout, saying=f"{process!r} is stopped by its fault")
        return self._died(shard, process.pid, self.clock.mono(), effects=True)

    def go_on(self, shard: int) -> None:
        """SIGCONT now."""
        process = self.workers[shard]
        process.send(signal.SIGCONT)
        for death in [each for each in self.deaths if each.pid == process.pid]:
            self.rejoined(death)

    def wait_s(self, seconds: float) -> None:
        """Let time pass from now on, where a fault has a length."""
        until = self.clock.mono() + seconds
        block_until(lambda: self.clock.mono() >= until, seconds + 5, saying="time passes")

    @property
    def runs(self) -> list[Run]:
        """All runs of handlers so far."""
        return read_runs(self.diary)

    def books(self) -> StoredBooks:
        """What Redis holds now."""
        return stored_books(self.redis_url)

    def rest(self, timeout: float) -> StoredBooks:
        """The books once nothing is open and all workers have published that nothing is pending."""
        with contextlib.suppress(StillFalseError):
            block_until(self._at_rest, timeout, saying="nothing is open")
        return self.books()

    def _at_rest(self) -> bool:
        books = self.books()
        pending = sum(worker["books"]["pending"] for worker in books.workers.values())
        return not (books.open or pending or books.difference or books.workers_difference)

    def figures(self, traffic: Traffic, timeout: float = 10.0) -> Figures:
        """The verdict on a load that was played out; waits for the books to come to rest, at most so long."""
        traffic.report(120)
        return judge(traffic, self.runs, self.rest(timeout), self.deaths)

    def metric(self, shard: int, name: str) -> float:
        """A worker's metric, summed over its labels."""
        return metric(self.base(shard), name)

    def events(self, shard: int, name: str) -> list[dict[str, Any]]:
        """A worker's log events."""
        return events(self.workers[shard], name)

    def is_answering(self, shard: int) -> bool:
        """Whether the process behind the port answers at all."""
        return get(f"{self.base(shard)}/healthz")[0] == 200


def _state(pid: int) -> str:
    """The process's state letter, `T` where it is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


@contextlib.contextmanager
def lab(folder: Path, redis_url: str, **settings: str) -> Iterator[Lab]:
    """An empty lab; its processes end with the block. Settings are environment variables, scaled times the default."""
    diary = folder / "runs"
    diary.mkdir(parents=True)
    with site(folder, PALLAS_REDIS_URL=redis_url, **{**SCALED, **settings}) as here:
        found = Lab(here, redis_url, diary)
        try:
            yield found
        finally:
            for process in found.workers.values():
                # A stopped process cannot follow a polite request.
                process.send(signal.SIGCONT)
