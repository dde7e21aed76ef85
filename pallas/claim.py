"""One report's attempt to hold its message's entry, and where that entry stands in Redis.

An entry is a record in one of two packed hashes: by sequence (a block) or by content (an hour). The scripts write the
records; what a worker must read of them without a script, who holds an entry now, is read here.
"""

from __future__ import annotations

import struct
import zlib
from enum import Enum
from typing import Protocol

from pallas.errors import ReplyError
from pallas.keys import CONTENT_HOUR_S, Bucket

SLOT_S = 16
"""Contents are looked up by slots of so many seconds; clocks may differ by less."""
TOKEN_BYTES = 10
_RECORD = struct.Struct(">IL")
_MARK = struct.Struct(">L")
_BLOCK_RECORD = 19
_SAME_SEQUENCE_S = 3600


class Verdict(Enum):
    """What Redis said of a claim."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"
    """Redis has not said anything for so long that the message is too old to be answered."""


class Epoch(Protocol):
    """The worker's lease, as claims see it; `epoch` is 0 where none was taken yet."""

    shard_id: int
    epoch: int

    def token(self) -> bytes:
        """A new token, 10 bytes: shard, epoch, nonce. Raises LeaseLost while no lease is held."""

    def allows(self, token: bytes) -> bool:
        """Whether the token's epoch is still this worker's, by its own suspend-aware clock."""

    async def held(self) -> None:
        """Wait until a lease is held."""


class Claim:
    """One report's attempt to hold its message's entry; afterwards, the way to that entry.

    `mark` names this very report (account and message id), and is empty where this worker has told of the message
    before, without the sequence that this report brings; `tolerance_s` is by how much clocks may differ, below 16.
    `body` is the digest of user and content, needed only where an end reports no sequences.
    """

    __slots__ = (
        "__weakref__",
        "begun",
        "body",
        "bucket",
        "field",
        "former",
        "gap_s",
        "holder",
        "home",
        "mark",
        "released",
        "sender",
        "seq",
        "space",
        "time_s",
        "token",
        "tolerance_s",
    )

    def __init__(
        self, bucket: Bucket, space: str, seq: int | None, time_s: int, user_id: str, mark: str, tolerance_s: int = 0
    ) -> None:
        self.bucket = bucket
        self.space = space
        self.seq = seq
        self.time_s = time_s
        self.sender = zlib.crc32(user_id.encode())
        self.mark = mark
        self.tolerance_s = tolerance_s
        self.body: bytes | None = None
        self.token = b""
        self.former: tuple[bytes, ...] = ()
        """Tokens of earlier attempts, whose epochs have died."""
        self.home = ""
        self.field: bytes | int = b""
        self.holder = b""
        """State and token of whoever held the entry when it was last looked at; empty where that is not known."""
        self.gap_s: int | None = None
        """By how many seconds another worker's report of the message has another time; None where none is known.

        A claim that is won may have such a neighbour as well: an equal content that this worker has not heard of.
        """
        self.released = False
        """Whether this worker held the message and gave it back, sure that nothing of it was sent."""
        self.begun = False
        """Whether an effect may have happened: from then on only this claim's token may say how the message ended."""

    def record(self) -> bytes:
        """The record of an entry that this claim holds."""
        return b"c" + self.token + _RECORD.pack(self.time_s, self.sender)

    def observer(self) -> bytes:
        """Who reported it: the epoch, and the mark of this very report; empty where that is known already."""
        if not self.mark:
            return b""
        return self.token[2:6] + _MARK.pack(zlib.crc32(self.mark.encode()))

    def content_at(self, time_s: int) -> tuple[str, bytes]:
        """Where this claim's content stands if it was said at that time."""
        slot = time_s % CONTENT_HOUR_S // SLOT_S
        return self.bucket.hour(time_s), (self.body or b"") + bytes((slot,))

    def reach(self) -> int:
        """Seconds to the neighbouring slot that clocks may reach: -16, 16, or 0 where they cannot."""
        within = self.time_s % SLOT_S
        if within < self.tolerance_s:
            return -SLOT_S
        return SLOT_S if within + self.tolerance_s >= SLOT_S else 0

    def lost(self, reply: bytes) -> None:
        """Keep what the script said of the holder: who it is, and where the entry stands. Raises ReplyError."""
        try:
            self._lost(reply)
        except (IndexError, ValueError, struct.error) as error:
            raise ReplyError(f"ERR what stands for the message in {self.space} is none of ours") from error

    def _lost(self, reply: bytes) -> None:
        kind, self.holder = reply[:1], b""
        match kind:
            case b"q":
                self.holder = reply[1:12]
                self.gap_s = reply[12] if len(reply) > 12 else None
                self._stand_by_sequence(self.seq or 0)
            case b"t":
                self.holder = reply[1:12]
                self.gap_s = reply[13]
                shift = self.reach() if reply[12:13] == b"a" else 0
                self.home, self.field = self.content_at(self.time_s + shift)
            case b"s":
                self.gap_s = reply[3]
                self._stand_by_sequence(int.from_bytes(reply[1:3], "big"))
            case _:
                self.field = reply[1:10]
                # The pointer knows the slot within the hour; its own time says which hour that is.
                time_s, slot = int.from_bytes(reply[10:14], "big"), reply[9]
                self.gap_s = abs(time_s - self.time_s)
                near = (time_s + shift for shift in (0, -SLOT_S, SLOT_S))
                here = next((when for when in near if when % CONTENT_HOUR_S // SLOT_S == slot), time_s)
                self.home = self.bucket.hour(here)

    def _stand_by_sequence(self, seq: int) -> None:
        self.home, self.field = self.bucket.block(seq), seq & 63

    def holder_in(self, records: bytes) -> bytes:
        """State and token of whoever holds the entry, read from its field; empty where it is remembered no more."""
        if isinstance(self.field, int):
            return self._holder_by_sequence(records)
        return self._holder_by_content(records)

    def _holder_by_sequence(self, records: bytes) -> bytes:
        for at in range(0, len(records) - _BLOCK_RECORD + 1, _BLOCK_RECORD):
            time_s, sender = _RECORD.unpack_from(records, at + 11)
            if sender == self.sender and abs(time_s - self.time_s) <= _SAME_SEQUENCE_S:
                return b"" if records[at : at + 1] == b"p" else records[at : at + 11]
        return b""

    def _holder_by_content(self, records: bytes) -> bytes:
        seq = b"" if self.seq is None else self.seq.to_bytes(2, "big")
        mark = _MARK.pack(zlib.crc32(self.mark.encode()))
        at = 0
        while at < len(records):
            head = 1 if records[at : at + 1] == b"s" else 11
            flags, count = records[at + head : at + head + 2]
            known = 2 if flags >= SLOT_S else 0
            first = at + head + 2 + known
            stop = first + count * 8
            ours = known and records[first - 2 : first] == seq
            if ours or any(records[one + 4 : one + 8] == mark for one in range(first, stop, 8)):
                return b"" if head == 1 else records[at : at + 11]
            at = stop
        return b""


def place_in(bucket: Bucket, place: bytes) -> tuple[str, bytes | int]:
    """Hash and field of an open entry, from what `open` keeps of it after its state. Raises ValueError."""
    _, _, rest = place.partition(b"|")
    where, found, content = rest.partition(b"|")
    if found:
        return bucket.hour(int(where)), content
    seq = int(where)
    return bucket.block(seq), seq & 63


def space_of(place: bytes) -> str:
    """The space of an open entry, from what `open` keeps of it after its state."""
    return place.partition(b"|")[0].decode("ascii", "replace")


def said_in(place: bytes, records: bytes, token: bytes) -> int:
    """When the message of an open entry was said, Unix seconds; 0 where its record is remembered no more."""
    _, _, rest = place.partition(b"|")
    where, found, _ = rest.partition(b"|")
    if found:
        return int(where)
    at = records.find(token)
    return int.from_bytes(records[at + 10 : at + 14], "big") if at > 0 else 0


def nobody_of(token: bytes) -> bytes:
    """What stands in the token's place once its entry was given back: the same with epoch 0."""
    return token[:2] + bytes(4) + token[6:]


def epoch_of(token: bytes) -> int:
    """The worker epoch that a token, with or without its state in front, belongs to; 0 is nobody's."""
    return int.from_bytes(token[-8:-4], "big")
