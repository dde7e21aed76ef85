"""A cluster that the pages can look at, kept in memory and changed by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter

from pallas.clock import Clock, SystemClock
from shard.view import (
    Books,
    BotReason,
    BotRow,
    BotState,
    Counters,
    DeadRow,
    EndedBook,
    Readiness,
    ShardRow,
    ShardState,
    WorkerBook,
)
from tests.support.waiting import wait_until
from webui.app import create_app
from webui.auth import Auth

SECRET = b"a secret of the data folder that is long enough"
TOKEN = "hub-token-canary"
HOME = "http://127.0.0.1:8088"
STRANGER = ("203.0.113.9", 40000)


class HandClock:
    """Both clocks, moved by the test."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def wall_s(self) -> float:
        return self.now

    def mono(self) -> float:
        return self.now - 1_700_000_000.0


class Cluster:
    """The view of a small deployment; `broken` is raised instead of an answer, `stuck` makes reads hang."""

    def __init__(self) -> None:
        self.bot_rows: list[BotRow] = []
        self.shard_rows: list[ShardRow] = []
        self.the_books = books()
        self.dead_rows: list[DeadRow] = []
        self.readiness = Readiness(ready=True, reason="ok", round_trip_ms=0.4)
        self.broken: Exception | None = None
        self.stuck = False
        self.reads = 0

    async def bots(self) -> list[BotRow]:
        await self._read()
        return list(self.bot_rows)

    async def shards(self) -> list[ShardRow]:
        await self._read()
        return list(self.shard_rows)

    async def books(self) -> Books:
        await self._read()
        return self.the_books

    async def dead(self) -> list[DeadRow]:
        await self._read()
        return list(self.dead_rows)

    async def ready(self) -> Readiness:
        await self._read()
        return self.readiness

    async def _read(self) -> None:
        self.reads += 1
        if self.stuck:
            await asyncio.Event().wait()
        if self.broken is not None:
            raise self.broken

    def change(self, self_id: str, **fields: Any) -> None:
        """Changes one account's row."""
        self.bot_rows = [replace(row, **fields) if row.self_id == self_id else row for row in self.bot_rows]


def bot(self_id: str, *, at: float, **fields: Any) -> BotRow:
    """An account that is well at `at`."""
    row = BotRow(
        self_id=self_id,
        nickname=f"bot {self_id}",
        shard_id="0",
        epoch=3,
        state=BotState.ONLINE,
        reason=BotReason.CONNECTED,
        end="napcat",
        end_version="4.9.1",
        connection_key="k1",
        adapter="onebot.v11",
        links=1,
        heartbeat_online=True,
        connected_at=at - 7300,
        last_seen_at=at - 4,
        last_event_at=at - 2,
        last_sent_at=at - 75,
    )
    return replace(row, **fields)


def shard(shard_id: str, *, at: float, **fields: Any) -> ShardRow:
    """A worker that is well at `at`."""
    row = ShardRow(
        shard_id=shard_id,
        epoch=3,
        state=ShardState.LIVE,
        lease_left_s=8.2,
        pid=4242,
        host="machine-a",
        address=f"127.0.0.1:{8090 + int(shard_id)}",
        app="pallas.demo:app",
        version="0.1.0",
        started_at=at - 7400,
        links=2,
        counters=Counters(
            arrived=10, refused={"stale": 1}, copies={"same_worker": 4}, ignored=2, distinct=3, outcomes={"handled": 3}
        ),
        loop_lag_ms=0.8,
        redis_rtt_ms=0.3,
    )
    return replace(row, **fields)


def dead_row(*, at: float, **fields: Any) -> DeadRow:
    """A message whose send nobody confirmed."""
    row = DeadRow(
        at=at - 90,
        said_at=at - 120,
        reason="sent_unknown",
        cause="no_answer",
        group_id="700100200",
        shard_id="0",
        epoch=3,
        bot_id="10001",
        handler="ping",
    )
    return replace(row, **fields)


def books(at: float = 1_800_000_000.0) -> Books:
    """Books that balance."""
    one = Counters(
        arrived=2040,
        refused={"stale": 12, "bad_id": 3},
        copies={"same_worker": 1300},
        ignored=100,
        distinct=625,
        outcomes={"handled": 608, "dropped:handler_error": 9},
        released={"lease_lost": 2},
        running=6,
        standby=4,
    )
    other = Counters(
        arrived=1000,
        copies={"other_shard": 690, "replay": 10},
        distinct=300,
        taken_over=2,
        outcomes={"handled": 292, "dropped:handler_error": 8},
        running=2,
        orphans={"holder_lost": 1},
    )
    ended = EndedBook(distinct=925, handled=900, dropped={"handler_error": 17}, open=8)
    return Books(as_of=at, workers=(WorkerBook("0", 3, one), WorkerBook("1", 5, other)), ended=ended, unaccounted=0)


def hub(
    cluster: Cluster, *, clock: Clock | None = None, token: str = TOKEN, hosts: Collection[str] = ()
) -> tuple[FastAPI, Auth]:
    """The application over `cluster`, and what it signs people in with."""
    clock = clock or SystemClock()
    registry = CollectorRegistry()
    Counter("pallas_hub_canary", "Is there to be found.", registry=registry)
    auth = Auth(SECRET, token, clock)
    app = create_app(cluster, auth, clock, registry=registry, onebot_path="/onebot/v11/ws", hosts=hosts)
    return app, auth


def visitor(app: FastAPI, *, peer: tuple[str, int] = STRANGER, **options: Any) -> httpx.AsyncClient:
    """A client at another machine that has proven nothing."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=peer), base_url=HOME, **options)


def operator(app: FastAPI, **options: Any) -> httpx.AsyncClient:
    """A client with the hub token."""
    return visitor(app, headers={"Authorization": f"Bearer {TOKEN}"}, **options)


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[str]:
    """The address of `app`, served on a free loopback port."""
    config = uvicorn.Config(app, host="127.0.0.1", port=0, access_log=False, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve(), name="hub under test")
    try:
        await wait_until(lambda: server.started or serving.done())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving
