"""The one place that knows redis-py: connections for every kind of server, and no repeated commands.

redis-py repeats a command whose connection broke, which turns a won claim into a lost one: here it never does.
Each transport carries one batch at a time on a connection of its own; blocking reads get a client of theirs.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import redis.asyncio as aio
import redis.exceptions as faults
from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from pallas.errors import RedisRefused, RedisUnavailable, ReplyError, ReplyUnknown, SettingsError
from pallas.redis.batch import Batcher, Command, Then, Transport
from pallas.redis.cluster import ClusterTransport, keys_of
from pallas.redis.scripts import Script
from pallas.redis.sentinel import primary_connections
from pallas.redis.url import RedisKind, RedisTarget
from pallas.tasks import Tasks

# hiredis declares the exact element types of a list it only reads.
_pack: Callable[[Command], bytes] = pack_command  # type: ignore[assignment]

_REFUSALS = (faults.AuthenticationError, faults.AuthorizationError, faults.NoPermissionError)

_SLOT_PAUSES_S = (0.01, 0.02, 0.04, 0.08)
_NOT_THE_PRIMARY = frozenset({"READONLY", "NOREPLICAS"})
"""A primary that was demoted, or whose replicas follow another one by now."""
CONNECTIONS = 4
"""Batches in flight at once; measured: more gain nothing, fewer let one slow reply hold back the rest."""


class Redis:
    """The narrow client that feature classes receive. Replies are raw RESP2: bytes, ints, lists, None."""

    def __init__(
        self,
        batcher: Batcher,
        *,
        one_slot: bool = False,
        control: Redis | None = None,
        patient: Redis | None = None,
    ) -> None:
        self._batcher = batcher
        self.patient = patient or self
        """The same server, waited for as long as a connection lives: for what is asked again.

        Where Redis answers late each time, a caller that gives up each time would never hear it.
        """
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

    def ask(self, command: Command, then: Then) -> None:
        """As `submit`, for the hot path: no future and no task; `then` is called with the reply or the RedisError.

        Nothing is asked again here: a script that the server has lost is an error like any other.
        """
        self._batcher.ask(command, then)

    async def execute(self, *command: bytes | str | int) -> Any:
        """Run one command. Raises RedisUnavailable, ReplyUnknown or ReplyError."""
        return await self._batcher.submit(command)

    async def run(self, script: Script, command: Command) -> Any:
        """Run a call built by `script.command` or `script.named`; survives SCRIPT FLUSH and a slot on its way."""
        for pause in _SLOT_PAUSES_S:
            try:
                return await self._batcher.submit(command)
            except ReplyError as error:
                if error.code == "NOSCRIPT":
                    command = script.with_source(command)
                elif error.code == "TRYAGAIN":
                    # A cluster moves the slot at this moment: some keys are here, some there, and nothing ran.
                    await asyncio.sleep(pause)
                else:
                    raise
        return await self._batcher.submit(command)

    async def close(self) -> None:
        """Drop all connections."""
        await self._batcher.close()
        for other in (self.control, self.patient):
            if other is not self:
                await other.close()


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

    def unhurried() -> Redis:
        alone = _transports(target, dead_after_ms / 1000)[:1]
        return Redis(Batcher(alone, tasks, late_s=dead_after_ms / 1000), one_slot=one_slot)

    return Redis(batcher, one_slot=one_slot, control=unhurried(), patient=unhurried())


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
        for name in ("tls_ca", "tls_cert", "tls_key"):
            _check_readable(name, getattr(target, name))
        options |= {
            "ssl_ca_certs": target.tls_ca or None,
            "ssl_certfile": target.tls_cert or None,
            "ssl_keyfile": target.tls_key or None,
        }
    return options


def _check_readable(name: str, path: str) -> None:
    """The system's own error would not say which file it is."""
    try:
        if path:
            Path(path).read_bytes()
    except OSError as error:
        raise SettingsError(f"PALLAS_REDIS_URL: {name}={path} cannot be read ({error.strerror})") from None


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
                for command in commands:
                    try:
                        replies.append(await read(disconnect_on_error=False))
                    except faults.ResponseError as error:
                        refusal = _refusal(error, command)
                        replies.append(refusal)
                        stale = stale or refusal.code in _NOT_THE_PRIMARY
        except TimeoutError:
            await self.close()
            raise ReplyUnknown(f"no reply from Redis within {self._dead_after_s:g} s") from None
        except (faults.RedisError, OSError) as error:
            await self.close()
            raise ReplyUnknown(f"the connection to Redis broke: {error}") from error
        if stale:
            # The next connect asks again who is primary.
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
        if connection is not None and connection.is_connected and not _is_dirty(connection):
            return connection
        # Closed by the server while nobody used it: nothing was sent on it, so a new one takes its place.
        await self.close()
        connection = self._make()
        try:
            async with asyncio.timeout(self._dead_after_s):
                await connection.connect()  # type: ignore[no-untyped-call]
        except TimeoutError:
            await connection.disconnect(nowait=True)
            hint = "; does it speak TLS there?" if isinstance(connection, aio.SSLConnection) else ""
            raise RedisUnavailable(f"cannot connect to Redis within {self._dead_after_s:g} s{hint}") from None
        except _REFUSALS as error:
            await connection.disconnect(nowait=True)
            raise RedisRefused(f"Redis refuses the user name or password (PALLAS_REDIS_URL): {error}") from error
        except (faults.RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            raise RedisUnavailable(f"cannot connect to Redis: {_untrusted(error) or error}") from error
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
            return _refusal(error, command)
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


def _is_dirty(connection: AbstractConnection) -> bool:
    """Whether the server has closed this idle connection, or said something on it that nobody asked for."""
    # redis-py's own look (`can_read`) misses a connection that was reset, and costs a coroutine for each batch.
    reader = connection._reader  # noqa: SLF001
    if reader is None:
        return True
    return bool(reader.at_eof() or reader.exception() is not None or reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001


def _untrusted(error: BaseException) -> str:
    """What is wrong with the server's certificate; empty where something else is."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return ""
    return (
        f"its TLS certificate is refused ({cause.verify_message}). PALLAS_REDIS_URL must name the host as the "
        "certificate does, and the authority that signed it as ?tls_ca=/path/to/ca.pem unless the system trusts it"
    )


def _refusal(error: faults.ResponseError, command: Command) -> ReplyError:
    """The server's words with their code in front, which redis-py strips from some and keeps beside them."""
    text = str(error)
    first = text.split(" ", 1)[0]
    if not (first.isalpha() and first.isupper()):
        # Only the in-memory server tells no code but by the class.
        code = error.status_code or ("NOSCRIPT" if isinstance(error, faults.NoScriptError) else "ERR")
        text = f"{code} {text}"
    if text.startswith("WRONGTYPE"):
        # The server does not say where: without a name nobody finds the foreign key.
        text = f"{text} (a foreign value is in the way, in {_named_keys(command)}; nothing was overwritten)"
    return ReplyError(text)


def _named_keys(command: Command) -> str:
    keys = keys_of(command)
    names = [key.decode(errors="replace") if isinstance(key, bytes) else str(key) for key in dict.fromkeys(keys)]
    return names[0] if len(names) == 1 else f"one of {', '.join(names[:6])}"


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
