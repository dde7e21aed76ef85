"""One simulated account at work: it connects, reports, answers actions, and comes back when its link breaks.

Each end reconnects for ever at its own fixed interval, as the real ones do. What becomes of reports that fall due
while the link is down is the end's own way, too: NapCat and LLOneBot lose them, Lagrange keeps them for some
seconds, go-cqhttp for ever. A lost report is lost for this account only; the ledger asks whether anybody else
reported the message.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.protocol import State

from pallas.clock import Clock
from pallas.simulate.answers import Answer, Answerer
from pallas.simulate.ends import COSTUMES, Json
from pallas.simulate.ledger import Ledger, Record
from pallas.simulate.options import Conduct, Options
from pallas.simulate.world import Account, Physical, World
from pallas.tasks import Tasks

_MAX_FRAME_BYTES = 50 << 20
_RETIRE_S = 1.0
_CLOSE_TIMEOUT_S = 1.0
_FIRST_PAUSE_S = 0.25


@dataclass(slots=True, frozen=True)
class Due:
    """A report whose time has come."""

    record: Record
    frame: bytes
    at: float
    """When it fell due, on the run's monotonic clock."""
    copy: bool = False


@dataclass(slots=True, eq=False)
class _Link:
    """One connection to a worker, or the pair of them; both names may be the same socket."""

    api: ClientConnection
    event: ClientConnection
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    active: bool = True
    """False once a newer link has taken over the reports."""

    @property
    def open(self) -> bool:
        return self.api.state is State.OPEN and self.event.state is State.OPEN

    async def closed(self) -> None:
        """Wait until either socket is closed."""
        waits = [asyncio.ensure_future(socket.wait_closed()) for socket in {self.api, self.event}]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        self.active = False
        for socket in {self.api, self.event}:
            await socket.close()
        await asyncio.gather(*self.readers, return_exceptions=True)

    async def retire(self, after_s: float) -> None:
        """Go on answering what was asked here before the newer link, then close."""
        await asyncio.sleep(after_s)
        await self.close()


class End:
    """The protocol end of one account."""

    def __init__(
        self, account: Account, world: World, options: Options, *, ledger: Ledger, clock: Clock, tasks: Tasks
    ) -> None:
        self.account = account
        self.problem = ""
        """Why the last attempt to connect failed."""
        self.conduct = options.conduct[account.index % len(options.conduct)]
        """What it makes of sends; may be changed at any time."""
        self._costume = COSTUMES[account.impl]
        self._answerer = Answerer(account, world)
        self._options = options
        self._ledger = ledger
        self._clock = clock
        self._tasks = tasks
        self._random = Random(f"end:{options.seed}:{account.self_id}")
        self._link: _Link | None = None
        self._outbox: deque[Due] = deque()
        self._recent: deque[Due] = deque(maxlen=3)
        self._wake = asyncio.Event()
        self._renew = asyncio.Event()
        self._sockets: set[ClientConnection] = set()

    def __repr__(self) -> str:
        return f"End({self.account.self_id}, {self.account.impl}, connected={self.connected})"

    @property
    def connected(self) -> bool:
        """The link is open and its first frame was sent."""
        return self._link is not None and self._link.open

    @property
    def pending(self) -> int:
        """Reports that wait to be written."""
        return len(self._outbox)

    def frame(self, message: Physical, time_s: int) -> bytes:
        """This account's report of a message that was said at `time_s`."""
        return orjson.dumps(self._costume.report(self.account, message, time_s))

    def push(self, due: Due) -> None:
        """Report now, or do what this end does with reports while its link is down."""
        if self._link is None and not self._costume.hold_s:
            self._ledger.missed(self.account)
            return
        self._outbox.append(due)
        self._wake.set()

    def renew(self) -> None:
        """Change to a new link, which is open before the old one closes."""
        self._renew.set()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        # Quick until it was connected once: the person who starts a demonstration should not wait for an end's pace.
        pause_s = min(_FIRST_PAUSE_S, self._costume.reconnect_s * self._options.time_scale)
        while True:
            link = await self._dial()
            if link is not None:
                pause_s = self._costume.reconnect_s * self._options.time_scale
                await self._serve(link)
                if self._renew.is_set():
                    self._renew.clear()
                    retire = link.retire(_RETIRE_S * min(1.0, self._options.time_scale))
                    self._tasks.start(retire, f"retire {self.account.self_id}")
                    continue
                self._link = None
                await link.close()
                await self._notice()
            self._link = None
            await asyncio.sleep(pause_s)
            self._expire()

    async def close(self) -> None:
        """Close every socket that is still open; `run` has been cancelled before."""
        self._link = None
        await asyncio.gather(*(socket.close() for socket in self._sockets))

    async def _dial(self) -> _Link | None:
        """Open the link; None, with `problem` set, where the worker cannot be reached or refuses."""
        sockets: list[ClientConnection] = []
        try:
            sockets.append(await self._connect("Event" if self.account.split else "Universal"))
            if self.account.split:
                sockets.append(await self._connect("Api"))
            lifecycle = self._costume.lifecycle(self.account, int(self._clock.wall_s()))
            await sockets[0].send(orjson.dumps(lifecycle), text=True)
        except InvalidStatus as error:
            self.problem = f"HTTP {error.response.status_code}"
        except TimeoutError:
            self.problem = "no answer to the handshake"
        except OSError as error:
            self.problem = (error.strerror or str(error)).lower()
        except WebSocketException as error:
            self.problem = str(error)
        else:
            self.problem = ""
            return _Link(api=sockets[-1], event=sockets[0])
        for socket in sockets:
            await socket.close()
        return None

    async def _connect(self, role: str) -> ClientConnection:
        socket = await connect(
            self.account.url,
            additional_headers=self._costume.headers(self.account, self._options.token, role),
            user_agent_header=self._costume.user_agent,
            compression=None,
            open_timeout=self._costume.open_timeout_s,
            close_timeout=_CLOSE_TIMEOUT_S,
            ping_interval=None,
            max_size=_MAX_FRAME_BYTES,
            proxy=None,
        )
        self._sockets = {known for known in self._sockets if known.state is not State.CLOSED} | {socket}
        return socket

    async def _serve(self, link: _Link) -> None:
        """Use the link until it closes or is to be renewed."""
        name = str(self.account.self_id)
        link.readers.append(self._tasks.start(self._answer(link.api), f"actions {name}"))
        if link.event is not link.api:
            link.readers.append(self._tasks.start(_discard(link.event), f"events {name}"))
        self._link = link
        if self._options.duplicates:
            again = list(self._recent)[-self._random.randint(1, 3) :]
            self._outbox.extendleft(replace(due, copy=True) for due in reversed(again))
        writer = self._tasks.start(self._write(link), f"reports {name}")
        ends = [
            self._tasks.start(link.closed(), f"closed {name}"),
            self._tasks.start(self._renew.wait(), f"renewal {name}"),
        ]
        beats = self._tasks.start(self._beat(link), f"heartbeat {name}")
        try:
            await asyncio.wait({writer, *ends}, return_when=asyncio.FIRST_COMPLETED)
            # Not cancelled but asked: a write that was begun is finished, so that the ledger knows its end.
            link.active = False
            self._wake.set()
            await asyncio.wait({writer}, timeout=_CLOSE_TIMEOUT_S)
        finally:
            for task in (writer, beats, *ends):
                task.cancel()

    async def _write(self, link: _Link) -> None:
        while link.active:
            if not self._outbox:
                self._wake.clear()
                await self._wake.wait()
                continue
            if not link.open:
                return
            due = self._outbox.popleft()
            self._ledger.written(due.record, self.account, self._clock.mono(), copy=due.copy)
            try:
                await link.event.send(due.frame, text=True)
            except ConnectionClosed:
                self._ledger.doubted(due.record, self.account, copy=due.copy)
                return
            self._recent.append(due)

    async def _beat(self, link: _Link) -> None:
        interval_s = self._costume.heartbeat_s * self._options.time_scale
        try:
            while True:
                await asyncio.sleep(interval_s)
                beat = self._costume.heartbeat(self.account, int(self._clock.wall_s()), interval_s)
                await link.event.send(orjson.dumps(beat), text=True)
        except ConnectionClosed:
            return

    async def _answer(self, socket: ClientConnection) -> None:
        try:
            async for frame in socket:
                answer = self._answerer.answer(frame, int(self._clock.wall_s()))
                reply = answer.reply if answer.sent is None else self._treat(socket, frame, answer)
                if answer.refused:
                    self._ledger.refused(self.account)
                if reply is not None:
                    await socket.send(_reply(reply))
        except ConnectionClosed:
            return

    def _treat(self, socket: ClientConnection, frame: str | bytes, answer: Answer) -> Json | None:
        """A send as the account's conduct has it; what is answered at once, if anything."""
        conduct = self.conduct
        if conduct is Conduct.REFUSE:
            self._ledger.refused(self.account)
            return self._answerer.refusal(frame)
        if conduct not in {Conduct.CUT_BEFORE, Conduct.NEVER} and answer.sent is not None:
            self._ledger.accepted(self.account, answer.sent, self._clock.mono())
        if conduct in {Conduct.CUT_BEFORE, Conduct.OK_THEN_CUT}:
            socket.transport.abort()
        if conduct is Conduct.LATE:
            self._tasks.start(self._reply_late(socket, answer), f"late answer {self.account.self_id}")
        return answer.reply if conduct is Conduct.OK else None

    async def _reply_late(self, socket: ClientConnection, answer: Answer) -> None:
        await asyncio.sleep(self._options.late_s)
        if answer.reply is not None:
            try:
                await socket.send(_reply(answer.reply))
            except ConnectionClosed:
                return

    async def _notice(self) -> None:
        """Some ends see that the link is gone only when the next frame cannot be written; that one is lost."""
        if self._costume.notices_close:
            return
        if not self._outbox:
            self._wake.clear()
            try:
                async with asyncio.timeout(self._costume.heartbeat_s * self._options.time_scale):
                    await self._wake.wait()
            except TimeoutError:
                return
        if self._outbox:
            self._outbox.popleft()
            self._ledger.missed(self.account)

    def _expire(self) -> None:
        """Forget what this end does not keep for its next link."""
        oldest = self._clock.mono() - self._costume.hold_s * self._options.time_scale
        while self._outbox and self._outbox[0].at < oldest:
            self._outbox.popleft()
            self._ledger.missed(self.account)


async def _discard(socket: ClientConnection) -> None:
    """Nothing is asked on an event socket; its frames are read so that it sees the close."""
    try:
        async for _ in socket:
            pass
    except ConnectionClosed:
        return


def _reply(reply: Json) -> str:
    # Not orjson: an echo may be any JSON value, numbers beyond 64 bits included.
    return json.dumps(reply)
