"""One link: answers reach the call they belong to, and what is not known is never said to have failed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from pallas.errors import AppError, NotSent, SendUnknown
from pallas.model import ActionReply
from pallas.onebot.ends import End
from pallas.onebot.link import CHANNEL_BROKE, NOT_CONNECTED, TIMED_OUT, Link, Role
from pallas.onebot.wire import parse
from tests.support.waiting import wait_until


class Recorded:
    """A socket that keeps what is written, or fails as it is told."""

    def __init__(self, failure: Exception | None = None, *, stuck: bool = False) -> None:
        self.frames: list[dict[str, Any]] = []
        self.closed: list[tuple[int, str]] = []
        self._failure = failure
        self._stuck = stuck

    async def write(self, frame: bytes) -> None:
        if self._failure is not None:
            raise self._failure
        self.frames.append(json.loads(frame))
        if self._stuck:
            await asyncio.Event().wait()

    async def close(self, code: int, reason: str) -> None:
        self.closed.append((code, reason))


def link(socket: Recorded, number: int = 1) -> Link:
    return Link(
        socket, number, bot_id="10001", role=Role.UNIVERSAL, end=End.NAPCAT, version="", user_agent="", peer="",
        opened_at=0.0,
    )  # fmt: skip


def answer(echo: Any, data: Any = None, **more: Any) -> ActionReply:
    frame = {"status": "ok", "retcode": 0, "data": data, "echo": echo, **more}
    found = parse(json.dumps(frame).encode(), bot_id="10001")
    assert isinstance(found, ActionReply)
    return found


async def begun(socket: Recorded, call: Coroutine[Any, Any, ActionReply]) -> asyncio.Task[ActionReply]:
    """The call's task, once its frame is written."""
    before = len(socket.frames)
    task = asyncio.create_task(call)
    await wait_until(lambda: len(socket.frames) > before)
    return task


async def test_an_answer_reaches_its_call_whatever_the_order() -> None:
    socket = Recorded()
    one = link(socket)
    tasks = [await begun(socket, one.call("get_msg", {"message_id": str(n)}, 5)) for n in range(20)]
    assert one.waiting == 20
    for number in reversed(range(20)):
        assert one.answered(answer(socket.frames[number]["echo"], {"n": number}))
    assert [(await task).data["n"] for task in tasks] == list(range(20))
    assert one.waiting == 0


async def test_every_echo_is_a_text_that_no_other_call_of_any_link_has() -> None:
    sockets = [Recorded(), Recorded()]
    links = [link(socket) for socket in sockets]
    tasks = [
        await begun(socket, one.call("get_status", {}, 5))
        for one, socket in zip(links, sockets, strict=True)
        for _ in range(50)
    ]
    echoes = [frame["echo"] for socket in sockets for frame in socket.frames]
    assert all(isinstance(echo, str) for echo in echoes)
    assert len(set(echoes)) == 100
    assert not links[1].answered(answer(echoes[0]))
    assert not tasks[0].done()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [one.waiting for one in links] == [0, 0]


@pytest.mark.parametrize("echo", [None, 1, 1.5, True, [], {}, {"seq": 1}, "", "x", "0-1"])
async def test_an_answer_with_an_odd_echo_is_nobodys(echo: Any) -> None:
    socket = Recorded()
    one = link(socket)
    task = await begun(socket, one.call("get_status", {}, 5))
    assert not one.answered(answer(echo))
    assert not task.done()
    assert one.answered(answer(socket.frames[0]["echo"], "mine"))
    assert (await task).data == "mine"


async def test_a_second_answer_to_one_call_is_ignored() -> None:
    socket = Recorded()
    one = link(socket)
    task = await begun(socket, one.call("get_status", {}, 5))
    echo = socket.frames[0]["echo"]
    assert one.answered(answer(echo, 1))
    assert not one.answered(answer(echo, 2))
    assert (await task).data == 1
    assert not one.answered(answer(echo, 3))


async def test_a_stream_of_answers_is_ended_by_its_last_frame() -> None:
    socket = Recorded()
    one = link(socket)
    task = await begun(socket, one.call("download_file_stream", {}, 5))
    echo = socket.frames[0]["echo"]
    for piece in range(3):
        partial = answer(echo, {"type": "stream", "data_type": "file_chunk", "index": piece}, stream="stream-action")
        assert one.answered(partial)
        assert not task.done()
    assert one.answered(answer(echo, {"type": "response", "data_type": "file_complete"}, stream="stream-action"))
    assert (await task).data["data_type"] == "file_complete"


async def test_a_call_on_a_closed_link_is_surely_not_sent() -> None:
    socket = Recorded()
    one = link(socket)
    one.lost()
    with pytest.raises(NotSent, match="account 10001: its link is closed, send_msg was not sent") as raised:
        await one.call("send_msg", {}, 5)
    assert raised.value.retcode == NOT_CONNECTED
    assert socket.frames == []


async def test_a_frame_that_was_never_written_is_surely_not_sent() -> None:
    one = link(Recorded(ConnectionError("the link is closed")))
    with pytest.raises(NotSent) as raised:
        await one.call("send_msg", {}, 5)
    assert raised.value.retcode == CHANNEL_BROKE
    assert one.waiting == 0


async def test_a_link_that_breaks_while_the_frame_is_written_leaves_it_unknown() -> None:
    one = link(Recorded(BrokenPipeError("the link closed")))
    with pytest.raises(SendUnknown, match="may have been done"):
        await one.call("send_msg", {}, 5)
    assert one.waiting == 0


async def test_calls_that_wait_when_the_link_closes_are_unknown_and_not_failed() -> None:
    socket = Recorded()
    one = link(socket)
    tasks = [await begun(socket, one.call("send_msg", {}, 5)) for _ in range(3)]
    one.lost()
    for task in tasks:
        with pytest.raises(SendUnknown, match="its link closed before the answer"):
            await task
    assert one.waiting == 0


async def test_an_answer_that_came_before_the_link_closed_counts() -> None:
    socket = Recorded()
    one = link(socket)
    task = await begun(socket, one.call("send_msg", {}, 5))
    one.answered(answer(socket.frames[0]["echo"], "done"))
    one.lost()
    assert (await task).data == "done"


async def test_a_call_without_an_answer_is_unknown_after_its_time() -> None:
    one = link(Recorded())
    with pytest.raises(SendUnknown, match=r"no answer to send_msg within 0\.02 s; it may have been done") as raised:
        await one.call("send_msg", {}, 0.02)
    assert raised.value.retcode == TIMED_OUT
    assert one.waiting == 0


async def test_an_end_that_stops_reading_does_not_hold_the_caller_for_ever() -> None:
    one = link(Recorded(stuck=True))
    with pytest.raises(SendUnknown):
        await one.call("send_msg", {}, 0.02)
    assert one.waiting == 0


async def test_an_answer_after_its_time_is_nobodys() -> None:
    socket = Recorded()
    one = link(socket)
    with pytest.raises(SendUnknown):
        await one.call("send_msg", {}, 0.02)
    assert not one.answered(answer(socket.frames[0]["echo"]))


async def test_parameters_that_are_no_json_are_refused_before_anything_is_sent() -> None:
    socket = Recorded()
    one = link(socket)
    with pytest.raises(AppError):
        await one.call("send_msg", {"message": object()}, 5)
    assert (socket.frames, one.waiting) == ([], 0)


async def test_an_error_never_shows_what_was_to_be_sent() -> None:
    for socket in (Recorded(ConnectionError("closed")), Recorded(BrokenPipeError("broke")), Recorded()):
        one = link(socket)
        with pytest.raises((NotSent, SendUnknown)) as raised:
            await one.call("send_msg", {"message": "a secret of two"}, 0.02)
        assert "secret" not in str(raised.value)


async def test_closing_is_left_to_the_socket() -> None:
    socket = Recorded()
    one = link(socket)
    await one.close(1012, "restart")
    assert socket.closed == [(1012, "restart")]
    assert one.is_open
    one.lost()
    assert repr(one) == "<Link 1 10001 universal napcat closed>"
