"""Whether hub and workers can listen on a port, and what `pallas doctor` tells of it.

A port that one of our own running processes holds is as good as a free one. Nothing is connected to but ourselves.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pallas.errors import PallasError
from shard.endpoints import running as running_here
from shard.finding import Check, Finding, Level
from shard.health import Process

if TYPE_CHECKING:
    from pallas.settings import Settings

_WORKERS_OF_UP = 2


class Port(StrEnum):
    """What a try to listen tells."""

    FREE = "free"
    BUSY = "busy"
    FORBIDDEN = "forbidden"
    NOT_HERE = "not_here"


def port_findings(settings: Settings, running: Sequence[Process]) -> list[Finding]:
    """One finding for each process that runs here, and for each port that the settings would use next."""
    hubs = [process for process in running if process.endpoint.name == "hub"]
    workers = [process for process in running if process.endpoint.name != "hub"]
    found = [_held(Check.HUB, process) for process in hubs]
    if not hubs:
        found.append(_wanted(Check.HUB, settings.host, settings.hub_port, "PALLAS_HUB_PORT (--hub-port)"))
    found += [_held(Check.WORKERS, process) for process in workers]
    if not workers:
        ids = range(_WORKERS_OF_UP) if settings.shard_id is None else (settings.shard_id,)
        name = "PALLAS_WORKER_PORT (--worker-port; worker K listens on it + K)"
        found += [_wanted(Check.WORKERS, settings.host, settings.worker_port + each, name) for each in ids]
    return found


def refuse_taken(settings: Settings, workers: int) -> None:
    """Raise PallasError where a hub and workers 0 to `workers` - 1 could not listen; it names each port."""
    host, base = settings.host, settings.worker_port
    wanted = [("the hub", settings.hub_port, "PALLAS_HUB_PORT")]
    setting = "PALLAS_WORKER_PORT (shard K listens on it + K)"
    wanted += [(f"shard {shard}", base + shard, setting) for shard in range(workers)]
    ours = {urlsplit(each.health).port: f"{each.name} of this data folder" for each in running_here(settings.data_dir)}
    problems = []
    for who, port, name in wanted:
        match try_port(host, port):
            case Port.FREE:
                continue
            case Port.BUSY:
                problem = f"in use by {ours.get(port, 'another process')}); free the port, or set another {name}"
            case Port.FORBIDDEN:
                problem = f"this user may not); set another {name}, above 1023"
            case Port.NOT_HERE:
                raise PallasError(
                    f"this machine cannot listen on the address {host}: set PALLAS_HOST to 127.0.0.1, to 0.0.0.0 or to "
                    "an address of this machine"
                )
        problems.append(f"{who} cannot listen on {host}:{port} ({problem}")
    if problems:
        raise PallasError("\n".join(problems))


def try_port(host: str, port: int) -> Port:
    """Listen for a moment, as hub and workers do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except PermissionError:
        return Port.FORBIDDEN
    except OSError as error:
        return Port.BUSY if error.errno == errno.EADDRINUSE else Port.NOT_HERE
    return Port.FREE


def _held(check: Check, process: Process) -> Finding:
    endpoint = process.endpoint
    port = urlsplit(endpoint.health).port or 0
    fields = {"name": endpoint.name, "port": port, "pid": endpoint.pid, "reason": process.reason, "url": endpoint.url}
    who = f"{endpoint.name} runs on port {port} (process {endpoint.pid})"
    if process.ready:
        return Finding(Level.OK, check, "process_ready", f"{who} and is ready", fields=fields)
    if process.answers:
        return Finding(
            Level.FAIL,
            check,
            "process_not_ready",
            f"{who} and is not ready: {process.reason or 'it does not say why'}",
            "its log has the cause; where the reason is redis_unavailable or no_lease look at Redis first",
            fields,
        )
    return Finding(
        Level.FAIL,
        check,
        "process_silent",
        f"{who} and does not answer",
        f"look into its log; if it hangs end process {endpoint.pid}: `pallas up` starts it again",
        fields,
    )


def _wanted(check: Check, host: str, port: int, setting: str) -> Finding:
    fields = {"host": host, "port": port, "setting": setting}
    match try_port(host, port):
        case Port.FREE:
            return Finding(Level.OK, check, "port_free", f"port {port} is free", fields=fields)
        case Port.BUSY:
            return Finding(
                Level.FAIL,
                check,
                "port_busy",
                f"port {port} is in use by a process that does not belong to this data folder",
                f"see which with `ss -ltnp 'sport = :{port}'`, end it, or set another {setting}",
                fields,
            )
        case Port.FORBIDDEN:
            return Finding(
                Level.FAIL,
                check,
                "port_forbidden",
                f"this user ({_user()}) may not listen on port {port}",
                f"set {setting} to a port above 1023",
                fields | {"user": _user()},
            )
        case Port.NOT_HERE:
            return Finding(
                Level.FAIL,
                check,
                "host_not_here",
                f"this machine cannot listen on the address {host}",
                "set PALLAS_HOST to 127.0.0.1, to 0.0.0.0 or to an address of this machine",
                fields,
            )


def _user() -> str:
    return f"uid {os.geteuid()}" if hasattr(os, "geteuid") else "this one"
