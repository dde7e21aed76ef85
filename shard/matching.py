"""Which reports of this worker's accounts are one message: decided in memory, before Redis is asked.

Accounts are told apart here, so that to the rest of the deployment the observer is this worker: a report that leaves
this table as new is one that this worker has not seen from any of its accounts. By sequence first; by content, within
the same second, where one of the two has no sequence. An account that has reported an entry never matches it again,
which is what keeps honest repeats apart.
"""

from __future__ import annotations

import random
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from pallas.identity import body_digest
from pallas.model import Message

if TYPE_CHECKING:
    from pallas.handler import Route
    from pallas.keys import Bucket, Keys

SAME_SEQUENCE_S = 3600
"""A sequence says "the same" only within an hour: 16 bits wrap after 65 536 messages."""
_KEPT_CHARS = 200
_LOOK_S = 1.0
_TWINS = 64
"""Messages of one person with one content in one second that are told apart; further ones cost no more time."""


class Standing(Enum):
    """What a report is to this worker."""

    NEW = "new"
    ANOTHER = "another"
    """An entry's first report from this account: a copy, to everybody but a fan-out handler."""
    AGAIN = "again"
    """The same account reported it before: a replay."""


class Entry:
    """A message as this worker knows it: what tells it apart, and who reported it.

    The report itself is not kept: entries stay small, whatever pictures their messages carried.
    """

    __slots__ = (
        "_anonymous",
        "_text",
        "body",
        "born",
        "group",
        "marks",
        "observers",
        "route",
        "seq",
        "time_s",
        "user_id",
    )

    def __init__(self, message: Message, group: Group, born: float, body: bytes | None) -> None:
        self.group = group
        self.born = born
        self.seq = message.seq
        self.time_s = message.time_s
        self.user_id = message.user_id
        self.observers: list[str] = [message.bot_id]
        self.marks: list[tuple[str, str]] | None = None
        self.route: Route | None = None
        # Where all ends report sequences the digest is not needed, and its time is saved; but only a short text
        # that surely is the content can stand for its message until then.
        text = self._text = message.text
        self._anonymous = message.anonymous
        if body is None and not (0 < len(text) <= _KEPT_CHARS and (text[0].isalnum() or text[0] == "/")):
            body = body_digest(message)
        if body is not None:
            self._text = ""
        self.body = body

    def digest(self) -> bytes:
        """The digest of user and content."""
        if self.body is None:
            said = Message("", "", self.user_id, "", None, 0, self._text, (), [], {}, self._anonymous)
            self.body = body_digest(said)
        return self.body


class Group:
    """What is known of one space: its entries, and whether some end reports no sequences there."""

    __slots__ = ("bodies", "bucket", "living", "marks", "plain", "seqs", "space")

    def __init__(self, space: str, bucket: Bucket) -> None:
        self.space = space
        self.bucket = bucket
        self.plain = False
        self.living = 0
        self.seqs: dict[int, Entry] = {}
        self.bodies: dict[tuple[bytes, int], list[Entry]] = {}
        """By content and second; filled only where contents are compared."""
        self.marks: dict[tuple[str, str], Entry] = {}
        """(account, message id) of reports without a sequence: the replay filter for ends that have nothing better."""

    def become_plain(self) -> None:
        """From now on contents count too; entries that came before are given theirs."""
        if not self.plain:
            self.plain = True
            for entry in self.seqs.values():
                self.index(entry)

    def index(self, entry: Entry) -> None:
        """Let an entry be found by its content."""
        twins = self.bodies.setdefault((entry.digest(), entry.time_s), [])
        twins.append(entry)
        if len(twins) > _TWINS:
            del twins[0]


class Table:
    """The match table of one worker, bounded by count and age."""

    def __init__(self, keys: Keys, *, max_entries: int, keep_s: float, keep_plain_s: float) -> None:
        """`keep_s` is for groups where all ends report sequences: Redis knows those messages again by themselves.

        Where one does not, Redis believes this worker that it has told two messages apart, so it must remember
        (`keep_plain_s`) as long as a report may still come.
        """
        self._keys = keys
        self._max_entries = max_entries
        self._keep_s = keep_s
        self._keep_plain_s = max(keep_s, keep_plain_s)
        self._groups: dict[str, Group] = {}
        self._order: deque[Entry] = deque()
        self._plain_order: deque[Entry] = deque()
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._order) + len(self._plain_order)

    def group(self, space: str) -> Group:
        group = self._groups.get(space)
        if group is None:
            group = self._groups[space] = Group(space, self._keys.bucket(space))
        return group

    def observe(self, message: Message, space: str, now: float) -> tuple[Standing, Entry]:
        """Match a report; `now` is monotonic. An entry that is new is remembered, another observer is added to it."""
        if now >= self._look_at or len(self._order) + len(self._plain_order) >= self._max_entries:
            self._forget(now)
        group = self._groups.get(space)
        if group is None:
            group = self.group(space)
        seq = message.seq
        if seq is not None:
            entry = group.seqs.get(seq)
            if (
                entry is not None
                and entry.user_id == message.user_id
                and abs(entry.time_s - message.time_s) <= SAME_SEQUENCE_S
            ):
                return self._seen(entry, message)
        elif not group.plain:
            group.become_plain()
        body = None
        if group.plain:
            body = body_digest(message)
            if seq is None and message.message_id:
                entry = group.marks.get((message.bot_id, message.message_id))
                # Some ends give one id to several messages: only the same content is the same report.
                if entry is not None and entry.body == body:
                    return Standing.AGAIN, entry
            for entry in group.bodies.get((body, message.time_s), ()):
                if message.bot_id not in entry.observers and (seq is None or entry.seq is None):
                    if seq is not None:
                        entry.seq = seq
                        group.seqs[seq] = entry
                    return self._seen(entry, message)
        entry = Entry(message, group, now, body)
        (self._plain_order if group.plain else self._order).append(entry)
        group.living += 1
        if seq is not None:
            group.seqs[seq] = entry
        else:
            self._mark(entry, message)
        if body is not None:
            group.index(entry)
        return Standing.NEW, entry

    def _seen(self, entry: Entry, message: Message) -> tuple[Standing, Entry]:
        if message.bot_id in entry.observers:
            return Standing.AGAIN, entry
        entry.observers.append(message.bot_id)
        if message.seq is None:
            self._mark(entry, message)
        return Standing.ANOTHER, entry

    @staticmethod
    def _mark(entry: Entry, message: Message) -> None:
        if message.message_id:
            mark = (message.bot_id, message.message_id)
            entry.group.marks[mark] = entry
            if entry.marks is None:
                entry.marks = [mark]
            else:
                entry.marks.append(mark)

    def _forget(self, now: float) -> None:
        order, plain = self._order, self._plain_order
        while order and now - order[0].born > self._keep_s:
            entry = order.popleft()
            if entry.group.plain:
                plain.append(entry)
            else:
                self._drop(entry)
        while plain and now - plain[0].born > self._keep_plain_s:
            self._drop(plain.popleft())
        # Those that Redis knows by their sequence go first.
        while len(order) + len(plain) >= self._max_entries:
            self._drop((order or plain).popleft())
        self._look_at = now + _LOOK_S

    def _drop(self, entry: Entry) -> None:
        group = entry.group
        group.living -= 1
        if entry.seq is not None and group.seqs.get(entry.seq) is entry:
            del group.seqs[entry.seq]
        if entry.marks is not None:
            for mark in entry.marks:
                if group.marks.get(mark) is entry:
                    del group.marks[mark]
        if group.plain and entry.body is not None:
            key = (entry.body, entry.time_s)
            twins = group.bodies.get(key)
            if twins is not None and entry in twins:
                twins.remove(entry)
                if not twins:
                    del group.bodies[key]
        if group.living == 0:
            self._groups.pop(group.space, None)


class Sighting:
    """A notice as this worker knows it; `observers` tells who reported it, and when by their own clocks."""

    __slots__ = ("body", "born", "number", "observers", "space", "time_s")

    def __init__(self, space: str, body: bytes, bot_id: str, time_s: int, born: float, number: int) -> None:
        self.space = space
        self.body = body
        self.observers = {bot_id: time_s}
        self.time_s = time_s
        self.born = born
        self.number = number


class NoticeTable:
    """Notices of the last while, matched by content alone: they carry no sequence, and each end its own time."""

    def __init__(self, *, max_entries: int, keep_s: float, clocks_s: int) -> None:
        self._max_entries = max_entries
        self._keep_s = keep_s
        self._clocks_s = clocks_s
        self._sightings: dict[tuple[str, bytes], list[Sighting]] = {}
        self._order: deque[Sighting] = deque()
        self._number = random.getrandbits(32)

    def __len__(self) -> int:
        return len(self._order)

    def observe(self, bot_id: str, space: str, body: bytes, time_s: int, now: float) -> tuple[Standing, Sighting]:
        """Match a report; the sighting nearest in time that this account has not reported is the same happening."""
        while self._order and (now - self._order[0].born > self._keep_s or len(self._order) >= self._max_entries):
            self._forget(self._order.popleft())
        known = self._sightings.setdefault((space, body), [])
        near = [seen for seen in known if abs(seen.time_s - time_s) <= self._clocks_s]
        for seen in near:
            # The same account with the same second: the end pushed it again.
            if seen.observers.get(bot_id) == time_s:
                return Standing.AGAIN, seen
        fresh = [seen for seen in near if bot_id not in seen.observers]
        if fresh:
            best = min(fresh, key=lambda seen: abs(seen.time_s - time_s))
            best.observers[bot_id] = time_s
            return Standing.ANOTHER, best
        self._number += 1
        sighting = Sighting(space, body, bot_id, time_s, now, self._number)
        known.append(sighting)
        self._order.append(sighting)
        return Standing.NEW, sighting

    def _forget(self, sighting: Sighting) -> None:
        key = (sighting.space, sighting.body)
        left = [seen for seen in self._sightings.get(key, ()) if seen is not sighting]
        if left:
            self._sightings[key] = left
        else:
            self._sightings.pop(key, None)
