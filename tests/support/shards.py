"""Workers without their port: everything of a worker against a real Redis, its ends played by objects.

Frames go in where the listener would hand them over, calls come out where it would write them.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from pallas.app import App
from pallas.clock import Clock, SystemClock
from pallas.metrics import Meters
from pallas.onebot.ends import End
from pallas.onebot.link import Link, Role
from pallas.redis import open_redis, parse_url
from pallas.settings import Settings
from pallas.tasks import Tasks, every
from shard.redis_view import RedisView
from shard.view import DeadRow, EndedBook
from shard.worker import Worker
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

Json = dict[str, Any]
GROUP, USER = 700100200, 80001
_PASSING = ("message", "fanout", "link.identify", "presence.put", "presence.drop")
_numbers = itertools.count(1)


def group_message(
    bot: str, text: str, *, seq: int | None = None, mid: int | None = None, at: float | None = None, **more: Any
) -> Json:
    """An event as an end reports it, with the group's sequence or without; everything in `more` replaces a field."""
    ids = {"message_id": next(_numbers) + 10**6 if mid is None else mid}
    if seq is not None:
        ids["real_seq"] = seq
    return {
        "time": int(time.time() if at is None else at),
        "self_id": int(bot),
        "post_type": "message",
        "message_type": "group",
        "sub_type": "normal",
        "group_id": GROUP,
        "user_id": USER,
        **ids,
        "raw_message": text,
        "message": [{"type": "text", "data": {"text": text}}],
        "sender": {"user_id": USER, "nickname": "somebody", "card": "", "role": "member"},
        **more,
    }


def private_message(bot: str, text: str, **more: Any) -> Json:
    """The same, said to the account alone."""
    event = group_message(bot, text, **{"message_type": "private", "sub_type": "friend", **more})
    del event["group_id"]
    return event


def poke(bot: str, at: float | None = None, **more: Any) -> Json:
    """A notice of the group."""
    return {
        "time": int(time.time() if at is None else at),
        "self_id": int(bot),
        "post_type": "notice",
        "notice_type": "notify",
        "sub_type": "poke",
        "group_id": GROUP,
        "user_id": USER,
        "target_id": 80002,
        **more,
    }


def answered(call: Json) -> Json | None:
    """How an end that is well answers; None where it does not."""
    data: Json = {"message_id": next(_numbers)}
    if call["action"] == "get_version_info":
        data = {"app_name": "NapCat.Onebot", "app_version": "4.9.0"}
    elif call["action"] == "get_login_info":
        data = {"nickname": "a bot"}
    return {"status": "ok", "retcode": 0, "data": data, "echo": call["echo"]}


class PlayedEnd:
    """One link of an account; `respond` makes the answer to a call."""

    def __init__(self, worker: Worker, bot_id: str, respond: Callable[[Json], Json | None], role: Role) -> None:
        self._worker = worker
        self._respond = respond
        self.calls: list[Json] = []
        self.link = Link(
            self,
            next(_numbers),
            bot_id=bot_id,
            role=role,
            end=End.NAPCAT,
            version="4.9.0",
            user_agent="OneBot/11",
            peer="played",
            opened_at=time.time(),
        )
        worker.reception.opened(self.link)

    @property
    def sent(self) -> list[str]:
        """The texts that this account was made to send."""
        return [_text(call) for call in self.calls if call["action"].startswith("send_")]

    async def write(self, frame: bytes) -> None:
        call = json.loads(frame)
        self.calls.append(call)
        answer = self._respond(call)
        if answer is not None:
            asyncio.get_running_loop().call_soon(self.hear, answer)

    def hear(self, event: Json) -> None:
        """Hand over a frame as if it had just been read; a wish to be read more slowly is not granted."""
        held_back = self._worker.reception.frame(self.link, json.dumps(event, ensure_ascii=False).encode())
        if inspect.iscoroutine(held_back):
            held_back.close()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        if self.link.is_open:
            self.link.lost()
            self._worker.reception.closed(self.link, code, reason)


class Shard:
    """A worker that holds its lease and listens nowhere."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.ends: dict[str, PlayedEnd] = {}

    @property
    def meters(self) -> Meters:
        return self.worker.meters

    def connect(
        self, bot_id: str, respond: Callable[[Json], Json | None] = answered, role: Role = Role.UNIVERSAL
    ) -> PlayedEnd:
        """One more link of an account."""
        end = self.ends[bot_id] = PlayedEnd(self.worker, bot_id, respond, role)
        return end

    def hear(self, event: Json) -> None:
        """A frame on the newest link of the account that it names."""
        bot = str(event["self_id"])
        (self.ends.get(bot) or self.connect(bot)).hear(event)

    def is_quiet(self) -> bool:
        """Whether nothing is on its way any more."""
        under_way = any(task.get_name() in _PASSING for task in self.worker._tasks._running)
        return not (under_way or self.meters.pending or len(self.worker.runner) or self.worker.claims.unsettled)

    async def quiet(self, timeout: float = 10.0) -> None:
        """Wait for that, and look whether the books balance."""
        await wait_until(self.is_quiet, timeout, saying=f"quiet: {self.meters.books()}")
        assert_balanced(self.meters)

    async def ended(self) -> EndedBook:
        """What Redis counted for the whole deployment."""
        return (await self._view().books()).ended

    async def dead(self) -> list[DeadRow]:
        """What ended as dead in the whole deployment."""
        return await self._view().dead()

    def _view(self) -> RedisView:
        return RedisView(self.worker._redis, self.worker.keys, SystemClock(), name="test", purge_s=60)

    def live(self) -> None:
        """Keep the lease, stand by and sweep, as a worker does that was started."""
        worker, settings = self.worker, self.worker._settings
        for name, work in (
            ("lease.keep", worker.lease.keep()),
            ("standby.look", every(settings.standby_look_s / 2, worker.standby.look, name="standby.look")),
            ("orphans.sweep", every(settings.orphan_after_s / 15, worker.orphans.sweep, name="orphans.sweep")),
        ):
            worker._beats.start(work, name)

    async def die(self) -> None:
        """Do nothing any more that keeps a worker alive; what runs goes on, as in a process that was only stopped."""
        await self.worker._beats.stop()

    def sent(self) -> list[str]:
        """What all accounts of this worker sent, in no order of time."""
        return [text for end in self.ends.values() for text in end.sent]


def assert_balanced(meters: Meters) -> None:
    """Each report stands in one column, each message this worker held has one outcome or was given back."""
    books = meters.books()
    columns = sum(books["refused"].values()) + sum(books["copies"].values()) + books["ignored"] + books["distinct"]
    assert books["arrived"] == columns + books["pending"], books
    held, let_go = meters.distinct + meters.taken_over, sum(meters.released.values())
    assert held == sum(meters.outcomes.values()) + let_go, (books, dict(meters.outcomes), dict(meters.released))


@contextlib.asynccontextmanager
async def shards(
    url: str, folder: Path, *apps: App, clocks: Sequence[Clock] = (), **settings: Any
) -> AsyncIterator[list[Shard]]:
    """One worker for each app, all of one deployment; `clocks` are theirs, in order, where a test moves them."""
    tasks = Tasks()
    started: list[Shard] = []
    redis = []
    try:
        for number, app in enumerate(apps):
            chosen = Settings(data_dir=folder, shard_id=number, testing=True, drain_grace_s=0, **settings)
            limits = {"late_ms": chosen.claim_wait_ms, "dead_after_ms": chosen.redis_dead_after_ms}
            client = open_redis(parse_url(url), tasks, **limits)
            redis.append(client)
            clock = clocks[number] if number < len(clocks) else SystemClock()
            worker = Worker(chosen, app, client, clock, make_loop=asyncio.new_event_loop)
            started.append(Shard(worker))
            await worker.lease.take()
            worker._tasks.start(worker.pulse.watch(), "worker.watch")
        yield started
    finally:
        for shard in started:
            for end in shard.ends.values():
                await end.close()
            await shard.worker.stop()
        for client in redis:
            await client.close()
        await tasks.stop()


@contextlib.asynccontextmanager
async def listening(url: str, folder: Path, app: App, **settings: Any) -> AsyncIterator[Worker]:
    """One whole worker with its port open, in this process."""
    tasks = Tasks()
    given = {"shard_id": 0, "worker_port": free_port(), "testing": True, "drain_grace_s": 0, **settings}
    chosen = Settings(data_dir=folder, **given)
    limits = {"late_ms": chosen.claim_wait_ms, "dead_after_ms": chosen.redis_dead_after_ms}
    client = open_redis(parse_url(url), tasks, **limits)
    worker = Worker(chosen, app, client, SystemClock(), make_loop=asyncio.new_event_loop)
    try:
        await worker.start()
        yield worker
    finally:
        await worker.stop()
        await client.close()
        await tasks.stop()


def _text(call: Json) -> str:
    return "".join(str(part["data"].get("text", "")) for part in call["params"]["message"])
