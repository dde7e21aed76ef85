"""The one place that knows redis-py: connections for every kind of server, and no repeated commands.

redis-py repeats a command whose connection broke, which turns a won claim into a lost one: here it never does.
Each transport carries one batch at a time on a connection of its own; blocking reads get a client of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import redis.asyncio as aio
import redis.exceptions as faults
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from pallas.errors import RedisRefused, RedisUnavailable, ReplyError, ReplyUnknown, SettingsError
from pallas.redis.batch import Batcher, Command, Transport
from pallas.redis.cluster import ClusterTransport
from pallas.redis.scripts import Script
from pallas.redis.sentinel import primary_connections
from pallas.redis.url import RedisKind, RedisTarget
from pallas.tasks import Tasks

# hiredis declares the exact element types of a list it only reads.
_pack: Callable[[Command], bytes] = pack_command  # type: ignore[assignment]

_REFUSALS = (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError)

CONNECTIONS = 4
"""Batches in flight at once; measured: more gain nothing, fewer let one slow reply hold back the rest."""


class Redis:
    """The narrow client that feature classes receive. Replies are raw RESP2: bytes, ints, lists, None."""

    def __init__(self, batcher: Batcher, *, one_slot: bool = False, control: Redis | None = None) -> None:
        self._batcher = batcher
        self.control = control or self
        """The same server on a connection of its own, in order and with more patience: for leases and presence.

        They must neither queue behind a flood of claims nor count as failed because Redis paused for a moment.
        """
        self.one_slot = one_slot
        """Whether all keys of one script call must share a hash tag."""

    @property
    def last_reply(self) -> float:
        """When Redis last answered anything, in `time.monotonic()` seconds."""
        return self._batcher.last_reply

    def submit(self, *command: bytes | str | int) -> asyncio.Future[Any]:
        """Queue one command for this loop turn's write. The future raises `pallas.errors.RedisError`."""
        return self._batcher.submit(command)

    async def execute(self, *command: bytes | str | int) -> Any:
        """Run one command. Raises RedisUnavailable, ReplyUnknown or ReplyError."""
        return await self._batcher.submit(command)

    async def run(self, script: Script, command: Command) -> Any:
        """Run a script call built by `script.command` or `script.named`; survives SCRIPT FLUSH."""
        try:
            return await self._batcher.submit(command)
        except ReplyError as error:
            if error.code != "NOSCRIPT":
                raise
            return await self._batcher.submit(script.with_source(command))

    async def close(self) -> None:
        """Drop all connections."""
        await self._batcher.close()
        if self.control is not self:
            await self.control.close()


def open_redis(target: RedisTarget, tasks: Tasks, *, late_ms: int = 300, dead_after_ms: int = 3000) -> Redis:
    """A client for `target`; nothing is connected before the first command.

    `late_ms` is when a caller is told "unknown", `dead_after_ms` when the connection is given up.
    """
    transports = _transports(target, dead_after_ms / 1000)
    batcher = Batcher(transports, tasks, late_s=late_ms / 1000)
    one_slot = target.kind is RedisKind.CLUSTER
    if target.kind is RedisKind.MEMORY:
        # Another client would be another server.
        return Redis(batcher, one_slot=one_slot)
    alone = _transports(target, dead_after_ms / 1000)[:1]
    control = Redis(Batcher(alone, tasks, late_s=dead_after_ms / 1000), one_slot=one_slot)
    return Redis(batcher, one_slot=one_slot, control=control)


def _transports(target: RedisTarget, dead_after_s: float) -> list[Transport]:
    match target.kind:
        case RedisKind.MEMORY:
            return [_Commands(_memory_client(), dead_after_s)]
        case RedisKind.CLUSTER:
            options = _options(target, dead_after_s)
            kind = aio.SSLConnection if target.tls else aio.Connection

            def node(host: str, port: int) -> Transport:
                return _Pipe(lambda: kind(host=host, port=port, **options), dead_after_s)

            return [ClusterTransport(target.hosts, node) for _ in range(CONNECTIONS)]
        case RedisKind.EMBEDDED:
            raise SettingsError("embedded:// names a server to be started; connect to the URL it returns")
        case _:
            make = _connections(target, dead_after_s)
            return [_Pipe(make, dead_after_s) for _ in range(CONNECTIONS)]


def _options(target: RedisTarget, timeout_s: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "db": target.db,
        "username": target.username or None,
        "password": target.password or None,
        "protocol": 2,
        # The batch has one time-out of its own; redis-py would open one per reply, a fifth of all time.
        "socket_timeout": None,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
        "client_name": "pallas",
    }
    if target.tls:
        options |= {
            "ssl_ca_certs": target.tls_ca or None,
            "ssl_certfile": target.tls_cert or None,
            "ssl_keyfile": target.tls_key or None,
        }
    return options


def _connections(target: RedisTarget, timeout_s: float) -> Callable[[], AbstractConnection]:
    options = _options(target, timeout_s)
    match target.kind:
        case RedisKind.UNIX:
            return lambda: aio.UnixDomainSocketConnection(path=target.unix_path, **options)
        case RedisKind.SENTINEL:
            return primary_connections(target, options, timeout_s)
        case _:
            host, port = target.hosts[0]
            kind = aio.SSLConnection if target.tls else aio.Connection
            return lambda: kind(host=host, port=port, **options)


class _Pipe:
    """One connection; a batch is one write and as many reads."""

    def __init__(self, make: Callable[[], AbstractConnection], dead_after_s: float) -> None:
        self._make = make
        self._dead_after_s = dead_after_s
        self._connection: AbstractConnection | None = None

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        try:
            packed = b"".join([_pack(command) for command in commands])
        except (TypeError, UnicodeError):
            return await self._without_unwritable(commands)
        connection = await self._connected()
        replies: list[Any] = []
        stale = False
        try:
            async with asyncio.timeout(self._dead_after_s):
                await connection.send_packed_command(packed, check_health=False)
                read = connection.read_response
                for _ in commands:
                    try:
                        replies.append(await read(disconnect_on_error=False))
                    except faults.ResponseError as error:
                        replies.append(_refusal(error))
                        stale = stale or isinstance(error, faults.ReadOnlyError)
        except TimeoutError:
            await self.close()
            raise ReplyUnknown(f"no reply from Redis within {self._dead_after_s:g} s") from None
        except (faults.RedisError, OSError) as error:
            await self.close()
            raise ReplyUnknown(f"the connection to Redis broke: {error}") from error
        if stale:
            # A demoted primary: the next connect asks again who is primary.
            await self.close()
        return replies

    async def _without_unwritable(self, commands: Sequence[Command]) -> list[Any]:
        """A value that cannot be written (half of a surrogate pair, say) fails its own command alone."""
        replies: list[Any] = [_unwritable(command) for command in commands]
        sound = [place for place, reply in enumerate(replies) if reply is None]
        answers = await self.exchange([commands[place] for place in sound]) if sound else []
        for place, answer in zip(sound, answers, strict=True):
            replies[place] = answer
        return replies

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None and connection.is_connected:
            return connection
        connection = self._make()
        try:
            async with asyncio.timeout(self._dead_after_s):
                await connection.connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            await connection.disconnect(nowait=True)
            raise RedisUnavailable(f"cannot connect to Redis within {self._dead_after_s:g} s") from None
        except _REFUSALS as error:
            await connection.disconnect(nowait=True)
            raise RedisRefused(f"Redis refuses the user name or password (PALLAS_REDIS_URL): {error}") from error
        except (faults.RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            raise RedisUnavailable(f"cannot connect to Redis: {error}") from error
        self._connection = connection
        return connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)


class _Commands:
    """A client that takes one command at a time: the in-memory one."""

    def __init__(self, client: Any, dead_after_s: float) -> None:
        self._client = client
        self._dead_after_s = dead_after_s

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        try:
            async with asyncio.timeout(self._dead_after_s):
                return await asyncio.gather(*(self._one(command) for command in commands))
        except TimeoutError:
            raise ReplyUnknown(f"no reply from Redis within {self._dead_after_s:g} s") from None

    async def _one(self, command: Command) -> Any:
        try:
            call: Awaitable[Any] = self._client.execute_command(*command)
            return await call
        except faults.ResponseError as error:
            return _refusal(error)
        except (faults.RedisError, OSError) as error:
            return ReplyUnknown(f"the connection to Redis broke: {error}")

    async def close(self) -> None:
        await self._client.aclose()


def _unwritable(command: Command) -> ReplyError | None:
    try:
        _pack(command)
    except (TypeError, UnicodeError) as error:
        # Its values may be somebody's words: only the command's name is told.
        return ReplyError(
            f"ERR {command[0]!r} was not sent: one of its values cannot be written ({type(error).__name__})"
        )
    return None


def _refusal(error: faults.ResponseError) -> ReplyError:
    """The server's words with their code in front, which redis-py strips from some and keeps beside them."""
    text = str(error)
    first = text.split(" ", 1)[0]
    if first.isalpha() and first.isupper():
        return ReplyError(text)
    # Only the in-memory server tells no code but by the class.
    code = error.status_code or ("NOSCRIPT" if isinstance(error, faults.NoScriptError) else "ERR")
    return ReplyError(f"{code} {text}")


def _memory_client() -> Any:
    try:
        import fakeredis  # noqa: PLC0415  (an extra)
        import lupa  # noqa: F401, PLC0415
    except ImportError as error:
        raise SettingsError(
            "memory:// needs the extra `memory`: pip install 'pallas-cluster[memory]'; "
            "or leave PALLAS_REDIS_URL unset for the embedded server"
        ) from error
    client = fakeredis.FakeAsyncRedis(protocol=2)
    # Replies are to look as they do from a server, not as redis-py's callers like them.
    client.response_callbacks.clear()
    return client
