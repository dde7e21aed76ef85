"""The embedded server's folder `<data>/redis`: who owns it, its password, its log and where it can be reached.

    lock            held by the server process itself (inherited) and by its owner: one append-only file, one writer
    owner.lock      held by the owner alone, with its process id inside: tells a live owner from a dying server
    password        random, mode 0600: other local users reach the port, not the data
    endpoint.json   {"url": …, "pid": …}, mode 0600, only while the server answers
    valkey.conf     written anew at every start, mode 0600
    valkey.log      what the server says; moved to valkey.log.1 at a start when it has grown

A file left behind proves nothing; only a held lock does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import time
from pathlib import Path
from typing import BinaryIO

from pallas.errors import EmbeddedServerError

try:
    import fcntl
except ImportError:  # Windows: there is no server to own either
    fcntl = None  # type: ignore[assignment]

MAX_LOG_BYTES = 5 * 1024 * 1024
_POLL_S = 0.02
_OWNER_WAIT_S = 0.3
"""How long `owner.lock` may be busy before it counts as owned: `find_endpoint` holds it for a moment."""

_PASSWORD = re.compile(r"[\w-]{32,}")


def find_endpoint(data_dir: Path) -> str | None:
    """The URL, with its password, of the embedded server that runs on this data folder; None if none does."""
    folder = data_dir.absolute() / "redis"
    try:
        url = json.loads((folder / "endpoint.json").read_bytes())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    alive = isinstance(url, str) and _is_held(folder / "owner.lock") and _is_held(folder / "lock")
    return url if alive else None


class ServerFolder:
    """The folder while this process owns it. `lock()` comes first; nothing else may be called without it."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir.absolute() / "redis"
        self._owner_fd = -1
        self._server_fd = -1

    def __str__(self) -> str:
        return str(self.path)

    @property
    def is_owned(self) -> bool:
        """Whether this process holds the folder."""
        return self._owner_fd >= 0

    @property
    def server_lock(self) -> int:
        """The descriptor the server must inherit, so that the lock ends no earlier than the server."""
        return self._server_fd

    async def lock(self, wait_s: float) -> None:
        """Create the folder and own it; a server whose owner died gets `wait_s` to stop.

        Raises EmbeddedServerError where another live process owns it or it cannot be written.
        """
        if self._server_fd >= 0:
            return
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            self._owner_fd = await self._owned()
            self._server_fd = await self._server_gone(wait_s)
        except OSError as error:
            self.unlock()
            raise self.unusable(error) from error
        except BaseException:
            self.unlock()
            raise

    def unlock(self) -> None:
        """Give the folder up. The server must have ended: this ends its lock too."""
        for fd in (self._server_fd, self._owner_fd):
            if fd >= 0:
                # Explicitly: a copy of the descriptor in a forked child would keep the lock beyond our close.
                fcntl.flock(fd, fcntl.LOCK_UN)
        self.disown()

    def disown(self) -> None:
        """Give up all but the lock of a server that could not be ended: that one ends with it."""
        for fd in (self._server_fd, self._owner_fd):
            if fd >= 0:
                os.close(fd)
        self._server_fd = self._owner_fd = -1

    def unusable(self, error: OSError) -> EmbeddedServerError:
        """The error for a folder that cannot be created, read or written."""
        return EmbeddedServerError(
            f"cannot use {self.path} for the embedded server: {error.strerror or error}; free space or correct the "
            "permissions, or choose another folder with --data (PALLAS_DATA_DIR)"
        )

    def password(self) -> str:
        """The server's password, made at the first start and kept."""
        path = self.path / "password"
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            kept = path.read_text("ascii").strip()
            if _PASSWORD.fullmatch(kept):
                path.chmod(0o600)
                return kept
        password = secrets.token_urlsafe(32)
        self.write("password", password + "\n")
        return password

    def write(self, name: str, text: str) -> None:
        """Write a file of mode 0600 so that readers see the old or the new one, never half of one."""
        fresh = self.path / f".{name}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(self.path / name)

    def publish(self, url: str, pid: int) -> None:
        """Let other commands with this data folder find the server."""
        self.write("endpoint.json", json.dumps({"url": url, "pid": pid}) + "\n")

    def withdraw(self) -> None:
        """Take back `publish`; also what an owner that was killed left behind."""
        with contextlib.suppress(OSError):
            (self.path / "endpoint.json").unlink()

    def open_log(self) -> BinaryIO:
        """The server's log, for appending; a log that has grown too long is put aside first."""
        path = self.path / "valkey.log"
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_LOG_BYTES:
                path.replace(path.with_name("valkey.log.1"))
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def log_since(self, offset: int) -> str:
        """What the log says after `offset` bytes, at most its last 64 KiB."""
        with (self.path / "valkey.log").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - 65536))
            return file.read().decode("utf-8", "replace")

    def note_server(self, pid: int) -> None:
        """Write the server's process id into `lock`, for the error of whoever waits for it in vain."""
        _write_pid(self._server_fd, pid)

    async def _owned(self) -> int:
        path = self.path / "owner.lock"
        fd = await _locked(path, _OWNER_WAIT_S)
        if fd < 0:
            raise EmbeddedServerError(
                f"{self.path} is in use by process {_read_pid(path)}: one data folder, one owner. "
                "Stop that process, or choose another folder with --data (PALLAS_DATA_DIR)"
            )
        _write_pid(fd, os.getpid())
        return fd

    async def _server_gone(self, wait_s: float) -> int:
        path = self.path / "lock"
        fd = await _locked(path, wait_s)
        if fd < 0:
            raise EmbeddedServerError(
                f"{self.path} is still locked after {wait_s:g} s by a server whose owner is gone "
                f"(process {_read_pid(path)}). Look into {self.path / 'valkey.log'}, end that process, start again"
            )
        return fd


async def _locked(path: Path, wait_s: float) -> int:
    """A descriptor that holds the lock of `path`, -1 if it stayed busy."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + wait_s
    try:
        while not _take(fd):
            if time.monotonic() >= deadline:
                os.close(fd)
                return -1
            await asyncio.sleep(_POLL_S)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_held(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _write_pid(fd: int, pid: int) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{pid}\n".encode(), 0)


def _read_pid(path: Path) -> str:
    text = path.read_text("ascii", "replace").strip()
    return text if text.isdigit() else "unknown"
