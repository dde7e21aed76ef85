"""Which of our processes run on this machine, as files in the data folder.

A command with the same `--data` finds the running deployment by them. A file whose process has ended counts for
nothing, so that one left behind by a kill does no harm; nor does one of another machine or container that shares the
folder, where the same process id is somebody else.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from pallas.procs import pid_alive


@dataclass(slots=True, frozen=True)
class Endpoint:
    """A running process: `name` is `hub` or `worker-K`, `url` where people or protocol ends reach it."""

    name: str
    pid: int
    url: str
    health: str
    """Base of its plain HTTP pages (`/healthz`, `/readyz`, `/metrics`)."""
    host: str = field(default_factory=socket.gethostname)
    """The machine or container in which `pid` is its process id."""


def publish(data_dir: Path, endpoint: Endpoint) -> None:
    """Say that this process runs. Raises OSError where the folder cannot be written."""
    folder = data_dir / "run"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = folder / f".{endpoint.name}.{endpoint.pid}"
    record = {"pid": endpoint.pid, "host": endpoint.host, "url": endpoint.url, "health": endpoint.health}
    draft.write_text(json.dumps(record), "utf-8")
    draft.replace(folder / f"{endpoint.name}.json")


def withdraw(data_dir: Path, name: str) -> None:
    """Take this process's file away; a successor's is left alone."""
    file = data_dir / "run" / f"{name}.json"
    found = _read(file)
    if found is not None and found.pid == os.getpid() and found.host == socket.gethostname():
        file.unlink(missing_ok=True)


def running(data_dir: Path) -> list[Endpoint]:
    """The processes that run here now, hub first, then workers by number."""
    here = socket.gethostname()
    found = [_read(file) for file in (data_dir / "run").glob("*.json")]
    alive = [each for each in found if each is not None and each.host == here and pid_alive(each.pid)]
    return sorted(alive, key=lambda endpoint: (endpoint.name != "hub", len(endpoint.name), endpoint.name))


def _read(file: Path) -> Endpoint | None:
    try:
        record = json.loads(file.read_text("utf-8"))
        return Endpoint(
            file.stem, int(record["pid"]), str(record["url"]), str(record["health"]), host=str(record["host"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
