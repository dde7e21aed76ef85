"""What an answer of each end means: done, refused, or nobody knows. The last one must never be mistaken."""

from __future__ import annotations

from typing import Any

import pytest

from pallas.errors import ActionFailed, NotSent, SendUnknown
from pallas.model import ActionReply
from pallas.onebot.ends import End
from pallas.onebot.verdict import data_of, is_unknown


def reply(retcode: int, message: str = "", *, data: Any = None) -> ActionReply:
    return ActionReply("1", retcode == 0, retcode, data, message)


TIMEOUT_NAPCAT = "Timeout: NTEvent serviceAndMethod:NodeIKernelMsgService/sendMsg"
TIMEOUT_LLBOT = "invoke timeout, sendMsg"
BLOCKED_GOCQ = "SEND_MSG_API_ERROR: the message was blocked by server"


@pytest.mark.parametrize(
    "end, answer",
    [
        (End.NAPCAT, reply(1200, TIMEOUT_NAPCAT)),
        (End.LLONEBOT, reply(1200, TIMEOUT_LLBOT)),
        (End.LAGRANGE, reply(9057)),
        (End.LAGRANGE, reply(9000)),
        (End.GOCQ, reply(100, BLOCKED_GOCQ)),
    ],
)
def test_an_answer_that_cannot_tell_is_unknown_also_from_an_end_that_is_not_recognised(
    end: End, answer: ActionReply
) -> None:
    assert is_unknown(answer, end)
    assert is_unknown(answer, End.UNKNOWN)
    with pytest.raises(SendUnknown) as raised:
        data_of(answer, end, "10001", "send_group_msg")
    assert raised.value.retcode == answer.retcode


@pytest.mark.parametrize(
    "end, answer",
    [
        (End.NAPCAT, reply(1200, 'EventChecker Failed: {"result": 120}')),
        (End.NAPCAT, reply(1400, TIMEOUT_NAPCAT)),
        (End.NAPCAT, reply(1404, "no such action")),
        (End.NAPCAT, reply(9057)),
        (End.LLONEBOT, reply(1200, "invoke failed, sendMsg")),
        (End.LLONEBOT, reply(1200, f"it said: {TIMEOUT_LLBOT}")),
        (End.LAGRANGE, reply(120)),
        (End.LAGRANGE, reply(1200, "Timeout: of something")),
        (End.GOCQ, reply(100, "GROUP_NOT_FOUND: no such group")),
        (End.GOCQ, reply(404, "API_NOT_FOUND")),
        (End.UNKNOWN, reply(1200, "refused")),
        (End.UNKNOWN, reply(100, "refused")),
    ],
)
def test_a_refusal_is_surely_not_done_and_not_unknown(end: End, answer: ActionReply) -> None:
    assert not is_unknown(answer, end)
    with pytest.raises(ActionFailed) as raised:
        data_of(answer, end, "10001", "send_group_msg")
    assert type(raised.value) is ActionFailed
    assert not isinstance(raised.value, SendUnknown | NotSent)


@pytest.mark.parametrize("end", End)
def test_a_good_answer_gives_its_data(end: End) -> None:
    assert data_of(reply(0, data={"message_id": 5}), end, "10001", "send_group_msg") == {"message_id": 5}
    assert data_of(reply(0), end, "10001", "send_group_msg") is None


@pytest.mark.parametrize("retcode", [120, 9057])
def test_the_error_names_account_action_and_code_and_keeps_the_ends_words_apart(retcode: int) -> None:
    with pytest.raises(ActionFailed) as raised:
        data_of(reply(retcode, "cannot send: canary"), End.LAGRANGE, "10001", "set_group_ban")
    error = raised.value
    assert str(error).startswith(f"account 10001: set_group_ban was refused with retcode {retcode}")
    assert "canary" not in str(error) + repr(error)
    assert error.words == "cannot send: canary"


def test_the_ends_words_are_kept_within_bounds() -> None:
    with pytest.raises(ActionFailed) as raised:
        data_of(reply(120, "x" * 10_000), End.LAGRANGE, "10001", "set_group_ban")
    assert 0 < len(raised.value.words) <= 500
