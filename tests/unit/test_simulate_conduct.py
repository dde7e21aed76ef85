"""What simulated ends make of sends: each conduct as the worker sees it, and as the ledger counts it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from pallas.errors import SettingsError
from pallas.simulate import Conduct, Options, simulated
from tests.support.waiting import wait_until

LATE_S = 0.2


@dataclass
class Asker:
    """A stand-in worker that asks for one send over each link and notes what comes of it."""

    replies: list[dict[str, Any]] = field(default_factory=list)
    links: int = 0
    asked_at: float = 0.0
    answered_at: float = 0.0

    async def serve(self, socket: ServerConnection) -> None:
        self.links += 1
        now = asyncio.get_running_loop().time
        with suppress(ConnectionClosed):
            async for frame in socket:
                event = json.loads(frame)
                if event.get("meta_event_type") == "lifecycle" and self.links == 1:
                    self.asked_at = now()
                    params = {"group_id": 700_100_201, "message": "pong x"}
                    await socket.send(json.dumps({"action": "send_group_msg", "params": params, "echo": "e"}))
                elif "echo" in event:
                    self.answered_at = now()
                    self.replies.append(event)


@pytest.mark.parametrize(
    "conduct, accepted, refused, replies, links",
    [
        (Conduct.OK, 1, 0, 1, 1),
        (Conduct.REFUSE, 0, 1, 1, 1),
        (Conduct.LATE, 1, 0, 1, 1),
        (Conduct.OK_THEN_CUT, 1, 0, 0, 2),
        (Conduct.CUT_BEFORE, 0, 0, 0, 2),
        (Conduct.NEVER, 0, 0, 0, 1),
    ],
)
async def test_each_conduct_is_seen_and_counted_as_what_it_is(
    conduct: Conduct, accepted: int, refused: int, replies: int, links: int
) -> None:
    asker = Asker()
    async with serve(asker.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        options = Options(
            accounts=1,
            groups=1,
            messages=1,
            urls=(f"ws://127.0.0.1:{port}/",),
            conduct=(conduct,),
            late_s=LATE_S,
            time_scale=0.01,
            renewals=0.0,
        )
        async with simulated(options) as simulation:
            await wait_until(lambda: asker.asked_at > 0)
            await wait_until(lambda: asker.links >= links and len(asker.replies) >= replies)
            ledger = simulation.ledger
            await wait_until(lambda: ledger.answered == accepted)
            report = ledger.report()
            assert report.details["refused"] == refused
            assert len(asker.replies) == replies
            if replies:
                assert asker.replies[0]["status"] == ("failed" if conduct is Conduct.REFUSE else "ok")
            if conduct is Conduct.LATE:
                assert asker.answered_at - asker.asked_at >= LATE_S


def test_accounts_take_the_conducts_in_turn() -> None:
    with pytest.raises(SettingsError, match="conduct is empty"):
        Options(urls=("ws://127.0.0.1:1/",), conduct=())
    with pytest.raises(SettingsError, match="late_s is -1"):
        Options(urls=("ws://127.0.0.1:1/",), late_s=-1)


async def test_the_rows_of_a_ledger_hold_when_each_was_asked_and_answered() -> None:
    options = Options(urls=("ws://127.0.0.1:1/",), accounts=2, groups=1, messages=2)
    async with simulated(options) as simulation:
        ledger, world = simulation.ledger, simulation.world
        message = next(each for each in world.messages() if each.said.wanted)
        record = ledger.physical(message)
        ledger.written(record, world.accounts[1], 10.0)
        ledger.written(record, world.accounts[0], 10.5)
        (row,) = ledger.rows()
        assert (row.asked, row.unsure, row.answered, row.asked_at, row.answered_at) == (1, 0, 0, (10.0,), ())
        assert row.heard_by == frozenset({0, 1})
        assert row.nonce == message.said.text.removeprefix("ping ")
