"""The traffic of the ingress bench: messages as a protocol end reports them, and the bytes of their WebSocket frames.

Every text names its message and, where it is wanted, the time it was sent; so an application can tell what was lost,
what came twice and how long it took. Pure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import orjson
from websockets.frames import Frame, Opcode

CONTROL = "!"
"""Texts that begin with it are for the bench's application, all others are traffic."""

_NUMBER_CHARS = 8
_STAMP_CHARS = 19
_WORDS = ("晚上吃什么", "好的", "签到", "this one again?", "哈哈哈哈哈哈", "明天见", "ok", "有人一起打副本吗 差两个")


@dataclass(slots=True, frozen=True)
class Said:
    """One message that somebody wrote, as the server knows it."""

    group_id: int
    user_id: int
    seq: int
    text: str


class Traffic:
    """Messages in some groups, in random order, each with its group's next sequence."""

    def __init__(self, seed: int, *, groups: int = 50, members: int = 40) -> None:
        self._rng = random.Random(seed)
        self._members = members
        self._seqs = {700_100_000 + number: self._rng.randrange(1_000, 900_000) for number in range(groups)}
        self._groups = list(self._seqs)
        self._number = 0

    def messages(self, count: int) -> list[Said]:
        """The next `count` messages; no two texts are equal."""
        return [self._say(text_of(self._next(), self._rng.choice(_WORDS))) for _ in range(count)]

    def control(self, text: str) -> Said:
        """A message for the bench's application, not counted by it."""
        return self._say(CONTROL + text)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _say(self, text: str) -> Said:
        group = self._rng.choice(self._groups)
        self._seqs[group] += 1
        user = 80_000_000 + group % 1000 * 1000 + self._rng.randrange(self._members)
        return Said(group, user, self._seqs[group], text)


def text_of(number: int, words: str, stamp_ns: int = 0) -> str:
    """The text of message `number`; `stamp_ns` is when it was sent, 0 where nobody asks."""
    return f"{number:0{_NUMBER_CHARS}d} {stamp_ns:0{_STAMP_CHARS}d} {words}"


def number_of(text: str) -> int:
    """Which message a text is."""
    return int(text[:_NUMBER_CHARS])


def stamp_of(text: str) -> int:
    """When it was sent, in nanoseconds of the sender's monotonic clock."""
    return int(text[_NUMBER_CHARS + 1 : _NUMBER_CHARS + 1 + _STAMP_CHARS])


def stamped(text: str, stamp_ns: int) -> str:
    """The same message, sent at `stamp_ns`."""
    return text_of(number_of(text), text[_NUMBER_CHARS + _STAMP_CHARS + 2 :], stamp_ns)


def report(said: Said, account: int, time_s: int) -> bytes:
    """The event by which `account`, on an end like NapCat, reports a message."""
    local = hash((account, said.group_id, said.seq)) & 0x7FFFFFFF | 1
    return orjson.dumps(
        {
            "self_id": account,
            "user_id": said.user_id,
            "time": time_s,
            "message_id": local,
            "message_seq": local,
            "real_id": local,
            "real_seq": str(said.seq),
            "message_type": "group",
            "sender": {"user_id": said.user_id, "nickname": f"nick-{said.user_id}", "card": "", "role": "member"},
            "raw_message": said.text,
            "font": 14,
            "sub_type": "normal",
            "message": [{"type": "text", "data": {"text": said.text}}],
            "message_format": "array",
            "post_type": "message",
            "group_id": said.group_id,
            "group_name": f"group {said.group_id}",
        }
    )


def masked(payload: bytes) -> bytes:
    """The WebSocket text frame that carries `payload` from a client."""
    return Frame(Opcode.TEXT, payload).serialize(mask=True)


def chunks(frames: list[bytes], size: int) -> list[bytes]:
    """`size` frames at a time as one piece of bytes."""
    return [b"".join(frames[place : place + size]) for place in range(0, len(frames), size)]
