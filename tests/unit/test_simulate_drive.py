"""A whole run against small stand-in workers: what they do right or wrong shows in the ledger."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from pallas.errors import SimulationFailed
from pallas.process import Stopping
from pallas.simulate import LedgerReport, Options, Progress, Stage, run, simulated
from pallas.simulate.answers import plain_text
from tests.support.waiting import wait_until
from webui.demonstration import run_demo

OPTIONS = Options(
    urls=("ws://127.0.0.1:1/",),
    accounts=8,
    groups=5,
    messages=120,
    rate=1000,
    spread_s=0.2,
    time_scale=0.01,
    settle_s=0.1,
    patience_s=0.3,
    connect_timeout_s=5,
)


class Desk:
    """Decides for all stand-in workers of a test how often a message is answered."""

    def __init__(self, times: Callable[[str], int] = lambda _: 1) -> None:
        self._times = times
        self._seen: set[tuple[int, int]] = set()
        self.replies: list[dict[str, Any]] = []
        self.roles: Counter[str] = Counter()
        self.beats = 0
        self.first_frames: list[dict[str, Any]] = []
        self.api: dict[str, ServerConnection] = {}
        self.served: list[ServerConnection] = []

    async def serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        headers = socket.request.headers
        me, role = headers["X-Self-ID"], headers["X-Client-Role"]
        self.roles[role] += 1
        self.served.append(socket)
        if role != "Event":
            self.api[me] = socket
        first = True
        async for frame in socket:
            event = json.loads(frame)
            if "post_type" not in event:
                self.replies.append(event)
                continue
            if first:
                self.first_frames.append(event)
            first = False
            self.beats += event.get("meta_event_type") == "heartbeat"
            if event["post_type"] == "message":
                await self._consider(event, self.api[me], headers["User-Agent"])

    async def _consider(self, event: dict[str, Any], api: ServerConnection, agent: str) -> None:
        if agent.startswith("Lagrange"):
            seq = event["message_id"] >> 16 & 0xFFFF
        else:
            seq = int(event.get("real_seq", event["message_seq"])) & 0xFFFF
        key = (event["group_id"], seq)
        text = plain_text(event["message"]).strip()
        if key in self._seen or not text.startswith("ping "):
            return
        self._seen.add(key)
        answer = [{"type": "text", "data": {"text": "pong " + text.removeprefix("ping ")}}]
        for _ in range(self._times(text)):
            params = {"group_id": event["group_id"], "message": answer}
            await api.send(json.dumps({"action": "send_group_msg", "params": params, "echo": {"seq": seq}}))


@asynccontextmanager
async def workers(
    desk: Desk, count: int = 2, *, port: int = 0, token: str = ""
) -> AsyncIterator[tuple[tuple[str, ...], list[Server]]]:
    def checked(connection: ServerConnection, request: Request) -> Response | None:
        if token and not request.headers.get("Authorization", "").endswith(" " + token):
            return connection.respond(HTTPStatus.UNAUTHORIZED, "")
        return None

    servers: list[Server] = []
    try:
        for _ in range(count):
            servers.append(  # noqa: PERF401 - each must be closed if the next fails
                await serve(desk.serve, "127.0.0.1", port, process_request=checked, ping_interval=None)
            )
        yield tuple(f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/ws" for server in servers), servers
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


async def result(desk: Desk, options: Options = OPTIONS, *, count: int = 2) -> LedgerReport:
    async with workers(desk, count) as (urls, _):
        return await run(replace(options, urls=urls))


async def test_workers_that_answer_each_message_once_lose_and_double_nothing() -> None:
    desk = Desk()
    report = await result(desk)
    assert (report.lost, report.doubled, report.ok) == (0, 0, True)
    assert report.physical == report.answered == 120
    assert report.reports > 120
    details = report.details
    assert 5 < details["repeats"] < 40
    assert details["chatter"] == 12
    assert details["copies"] > 0
    assert details["strays"] == details["refused"] == details["unheard"] == 0
    assert set(details["implementations"]) == {"napcat", "llonebot", "lagrange", "gocq"}
    assert len(details["workers"]) == 2
    assert details["latency_p50_ms"] <= details["latency_p99_ms"] < 1000
    assert json.loads(json.dumps(report.as_dict()))["lost"] == 0


async def test_every_reply_brings_its_echo_back_and_every_link_begins_with_a_lifecycle() -> None:
    desk = Desk()
    await result(desk)
    assert len(desk.replies) >= 100
    assert all(isinstance(reply["echo"], dict) and reply["retcode"] == 0 for reply in desk.replies)
    assert {frame["meta_event_type"] for frame in desk.first_frames} == {"lifecycle"}
    assert desk.beats > 8


async def test_workers_that_answer_twice_are_told_so() -> None:
    report = await result(Desk(lambda _: 2))
    assert (report.lost, report.doubled) == (0, 120)
    assert not report.ok
    assert report.doubled_examples


async def test_workers_that_answer_none_lose_all() -> None:
    report = await result(Desk(lambda _: 0))
    assert (report.answered, report.lost, report.doubled) == (0, 120, 0)
    assert report.details["first_answer_s"] is None
    assert report.details["latency_p50_ms"] is None


async def test_workers_that_swallow_some_messages_lose_exactly_these() -> None:
    swallowed = 0

    def some(text: str) -> int:
        nonlocal swallowed
        if text.split("-")[1][5] == "7":
            swallowed += 1
            return 0
        return 1

    report = await result(Desk(some))
    assert swallowed > 0
    assert (report.lost, report.doubled) == (swallowed, 0)
    assert len(report.lost_examples) == min(5, len({e.text for e in report.lost_examples}))


async def test_ends_that_keep_apis_apart_use_two_sockets() -> None:
    desk = Desk()
    report = await result(desk, replace(OPTIONS, split=True, renewals=0))
    assert report.ok
    assert desk.roles == {"Universal": 6, "Event": 2, "Api": 2}


async def test_ends_too_old_for_sequences_still_make_a_run() -> None:
    # The stand-in worker cannot match them, so each report counts: the ledger must show it.
    report = await result(Desk(), replace(OPTIONS, plain=1, losses=0))
    assert report.doubled > 0


async def test_accounts_that_renew_their_link_report_again_and_lose_nothing() -> None:
    desk = Desk()
    report = await result(desk, replace(OPTIONS, renewals=1, losses=0, duplicates=0.001, messages=300))
    assert report.ok
    assert sum(desk.roles.values()) == 16
    assert report.details["copies"] >= 8
    assert report.details["missed"] == 0


async def test_progress_tells_connection_first_answer_sending_and_end() -> None:
    seen: list[Progress] = []
    desk = Desk()
    async with workers(desk) as (urls, _):
        await run(replace(OPTIONS, urls=urls, messages=500, rate=480), seen.append)
    stages = [progress.stage for progress in seen]
    assert stages[:2] == [Stage.CONNECTED, Stage.FIRST_ANSWER]
    assert stages[-1] is Stage.SETTLED
    assert {Stage.SENDING, Stage.SENT} <= set(stages)
    assert seen[0].connected == 8
    assert seen[-1].sent == seen[-1].answered == 500
    assert str(seen[0]).startswith("8 simulated accounts connected after ")
    assert "500/500 messages" in str(seen[-1])
    assert str(seen[-1]).endswith("0 open; the books are closed")


@pytest.mark.parametrize(
    "outstanding, waits", [(0, "waiting whether a double comes"), (1, "waiting for 1 answer"), (60, "for 60 answers")]
)
def test_while_it_settles_it_says_what_it_waits_for(outstanding: int, waits: str) -> None:
    said = Progress(Stage.SETTLING, 9.0, 8, 8, 300, sent=300, reports=900, answered=0, outstanding=outstanding)
    assert str(said).startswith("  9.0 s  300/300 messages, 900 reports, 0 answered")
    assert str(said).endswith(waits)


async def test_where_nobody_answers_a_person_is_told_why_before_the_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    async with workers(Desk(lambda _: 0)) as (urls, _):
        options = replace(OPTIONS, urls=urls, messages=60, patience_s=600, unanswered_s=2)
        assert await run_demo(options, Stopping(), as_json=False) == 1
    said = capsys.readouterr().out
    hint = "the workers must run the demo bot, `--app pallas.demo:app`"
    assert said.index(hint) < said.index("waiting for 60 answers") < said.rindex(hint) < said.index("The ledger")
    assert said.count(hint) == 2


async def test_where_nobody_answers_the_rest_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    async with workers(Desk(lambda _: 0)) as (urls, _):
        options = replace(OPTIONS, urls=urls, messages=60_000, patience_s=600, unanswered_s=0.3)
        assert await run_demo(options, Stopping(), as_json=False) == 1
    assert "Nothing was answered" in capsys.readouterr().out


async def test_one_answer_is_enough_for_all_others_to_be_waited_for() -> None:
    asked: set[str] = set()

    def only_the_first(text: str) -> int:
        asked.add(text)
        return len(asked) == 1

    report = await result(Desk(only_the_first), replace(OPTIONS, messages=60, unanswered_s=0.2, patience_s=0.5))
    assert (report.physical, report.answered) == (60, 1)


async def test_without_workers_the_error_names_the_address_and_what_to_start() -> None:
    desk = Desk()
    async with workers(desk, 1) as (urls, servers):
        servers[0].close()
        await servers[0].wait_closed()
        with pytest.raises(SimulationFailed) as caught:
            await run(replace(OPTIONS, urls=urls, connect_timeout_s=0.2))
    assert "8 of 8" in str(caught.value)
    assert urls[0] in str(caught.value)
    assert "pallas up" in str(caught.value)


async def test_a_wrong_token_is_named_and_not_shown() -> None:
    async with workers(Desk(), 1, token="right") as (urls, _):
        assert (await run(replace(OPTIONS, urls=urls, token="right"))).ok
        with pytest.raises(SimulationFailed, match=r"HTTP 401 .*PALLAS_ONEBOT_TOKEN") as caught:
            await run(replace(OPTIONS, urls=urls, token="wrong-token", connect_timeout_s=0.2))
    assert "wrong-token" not in str(caught.value)


@pytest.mark.parametrize("abruptly", [False, True])
async def test_accounts_come_back_after_their_worker_closed_every_link(abruptly: bool) -> None:
    desk = Desk()
    async with workers(desk) as (urls, _), simulated(replace(OPTIONS, urls=urls, messages=400, rate=800)) as simulation:
        await simulation.connect()
        playing = asyncio.ensure_future(simulation.play())
        await wait_until(lambda: simulation.ledger.reports > 200)
        before = list(desk.served)
        if abruptly:
            for socket in before:
                socket.transport.abort()
        else:
            await asyncio.gather(*(socket.close(1012) for socket in before))
        report = await playing
        await wait_until(lambda: all(end.connected for end in simulation.ends))
        assert len(desk.served) >= len(before) + 8
    # What fell due in the gap is lost for the ends that keep nothing, and nothing is doubled by those that do.
    assert report.doubled == 0
    assert report.answered > 100
    assert report.details["missed"] > 0


async def test_accounts_stay_connected_after_the_report_until_the_block_is_left() -> None:
    desk = Desk()
    async with workers(desk) as (urls, _):
        async with simulated(replace(OPTIONS, urls=urls, messages=20)) as simulation:
            await simulation.connect()
            await simulation.play()
            assert all(end.connected for end in simulation.ends)
        assert not any(end.connected for end in simulation.ends)


async def test_a_stopped_run_closes_its_books_on_what_was_sent() -> None:
    desk = Desk()
    async with workers(desk) as (urls, _), simulated(replace(OPTIONS, urls=urls, messages=100_000)) as simulation:
        await simulation.connect()
        playing = asyncio.ensure_future(simulation.play())
        await wait_until(lambda: simulation.ledger.answered > 20)
        simulation.stop()
        report = await playing
    assert report.ok
    assert report.details["interrupted"] is True
    assert 20 < report.physical < 5000
