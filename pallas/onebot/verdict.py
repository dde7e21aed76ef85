"""What an end's answer to a call means: done, refused, or nobody knows.

The ends report one fault in many ways (see the table of retcodes in docs/protocol.md); what matters is whether the act
may have happened all the same. Only that is decided here, by code and by the fixed beginnings that implementations
print, never by free text. The end's own words may repeat a message's body: they are handed on, never told.
"""

from __future__ import annotations

from typing import Any

from pallas.errors import ActionFailed, SendUnknown
from pallas.model import ActionReply
from pallas.onebot.ends import End

_LAGRANGE_UNKNOWN = frozenset({9000, 9057})
_UNKNOWN_BEGINNINGS = {End.NAPCAT: ("Timeout: NTEvent",), End.LLONEBOT: ("invoke timeout",)}
_ANY_BEGINNING = ("Timeout:", "invoke timeout")
_GOCQ_SEND_ERROR = "SEND_MSG_API_ERROR"
_LONGEST_WORDS = 500


def data_of(reply: ActionReply, end: End, bot_id: str, name: str) -> Any:
    """The data of a successful answer. Raises SendUnknown where the act may have happened, else ActionFailed."""
    if reply.ok:
        return reply.data
    text = f"account {bot_id}: {name} was refused with retcode {reply.retcode}"
    words = reply.message[:_LONGEST_WORDS]
    if is_unknown(reply, end):
        raise SendUnknown(f"{text}; the end cannot tell whether it was done", reply.retcode, words=words)
    raise ActionFailed(text, reply.retcode, words=words)


def is_unknown(reply: ActionReply, end: End) -> bool:
    """Whether a failed call may have been done all the same; an end that is not known may mean it in any way."""
    stranger = end is End.UNKNOWN
    if (stranger or end is End.LAGRANGE) and reply.retcode in _LAGRANGE_UNKNOWN:
        return True
    # One code for muted, risk control and a lost receipt.
    if (stranger or end is End.GOCQ) and reply.retcode == 100 and _GOCQ_SEND_ERROR in reply.message:
        return True
    beginnings = _ANY_BEGINNING if stranger else _UNKNOWN_BEGINNINGS.get(end, ())
    return reply.retcode == 1200 and reply.message.startswith(beginnings)
