"""Which reports of this worker's accounts are one message: decided in memory, before Redis is asked.

Accounts are told apart here, so that to the rest of the deployment the observer is this worker: a report that leaves
this table as new is one that this worker has not seen from any of its accounts. By sequence first; by content, within
the same second, where one of the two has no sequence. An account that has reported an entry never matches it again,
which is what keeps honest repeats apart. So there are as many entries of one content as there are sequences of it, or
as one account has reported, whichever is more: Redis counts by the same rule, with workers in the place of accounts.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from pallas.identity import body_digest
from pallas.model import Message
from shard.conduct import Conduct, Conducts
from shard.terms import Terms
from shard.turns import Turn

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
    LEARNED = "learned"
    """As ANOTHER, and it brought the sequence of an entry that had none: Redis must learn it, to count as we do."""
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
        "first",
        "group",
        "marks",
        "observers",
        "route",
        "seq",
        "time_s",
        "user_id",
    )

    def __init__(self, message: Message, group: Group, born: float, body: bytes | None, first: Conduct) -> None:
        self.group = group
        self.first = first
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

    __slots__ = (
        "bodies",
        "bots",
        "bucket",
        "contents_until",
        "has_plain",
        "last_turn",
        "living",
        "marks",
        "plain",
        "seqs",
        "space",
        "terms",
    )

    def __init__(self, space: str, bucket: Bucket, terms: Terms) -> None:
        self.space = space
        self.terms = terms
        self.bots: set[str] = set()
        """Accounts that reported here first at some time: where there are several, copies are to be expected."""
        self.bucket = bucket
        self.plain = False
        """Contents are compared here: an end reported no sequence, or one may."""
        self.has_plain = False
        self.contents_until = 0.0
        """Until when Redis is given contents here in any case, by the monotonic clock."""
        self.living = 0
        self.last_turn: Turn | None = None
        """The place of the latest message that was claimed here."""
        self.seqs: dict[int, Entry] = {}
        self.bodies: dict[tuple[bytes, int], list[Entry]] = {}
        """By content and second; filled only where contents are compared."""
        self.marks: dict[tuple[str, str], Entry] = {}
        """(account, message id) of reports without a sequence: the replay filter for ends that have nothing better."""

    def next_turn(self) -> Turn:
        """The place of the next message in this group's order."""
        turn = self.last_turn = Turn(self.last_turn)
        return turn

    def become_plain(self) -> None:
        """From now on contents count too; entries that came before are given theirs."""
        if not self.plain:
            self.plain = True
            for entry in self.seqs.values():
                self.index(entry)

    def follow(self) -> None:
        """Do as the fleet's terms say, where nobody has reported without a sequence here."""
        if self.terms.contents:
            self.become_plain()
        elif not self.has_plain:
            self.plain = False
            self.bodies.clear()

    def index(self, entry: Entry) -> None:
        """Let an entry be found by its content."""
        twins = self.bodies.setdefault((entry.digest(), entry.time_s), [])
        twins.append(entry)
        if len(twins) > _TWINS:
            del twins[0]


class Table:
    """The match table of one worker, bounded by count and age."""

    def __init__(
        self,
        keys: Keys,
        *,
        max_entries: int,
        keep_s: float,
        keep_plain_s: float,
        terms: Terms | None = None,
        conducts: Conducts | None = None,
    ) -> None:
        """`keep_s` is for groups where all ends report sequences: Redis knows those messages again by themselves.

        Where one does not, Redis believes this worker that it has told two messages apart, so it must remember
        (`keep_plain_s`) as long as a report may still come.
        """
        self._keys = keys
        self._terms = terms or Terms()
        self._conducts = Conducts() if conducts is None else conducts
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
            group = self._groups[space] = Group(space, self._keys.bucket(space), self._terms)
        return group

    def observe(self, message: Message, space: str, now: float) -> tuple[Standing, Entry]:
        """Match a report; `now` is monotonic. An entry that is new is remembered, another observer is added to it."""
        if now >= self._look_at or len(self._order) + len(self._plain_order) >= self._max_entries:
            self._forget(now)
        group = self._groups.get(space)
        if group is None:
            group = self.group(space)
        seq = message.seq
        conduct = self._conducts[message.bot_id]
        conduct.reports += 1
        if not message.message_id:
            conduct.without_id += 1
        if seq is not None:
            entry = group.seqs.get(seq)
            if entry is not None:
                if entry.user_id == message.user_id and abs(entry.time_s - message.time_s) <= SAME_SEQUENCE_S:
                    return self._seen(entry, message, conduct)
                if entry.user_id != message.user_id:
                    # One sequence, two senders: one of the two ends does not report the group's sequence.
                    conduct.conflicts += 1
                    entry.first.conflicts += 1
            if group.plain is not self._terms.contents:
                group.follow()
        else:
            if message.group_id:
                conduct.without_seq += 1
            else:
                conduct.private += 1
            group.has_plain = True
            if not group.plain:
                group.become_plain()
        body = None
        if group.plain:
            body = body_digest(message)
            if seq is None and message.message_id:
                entry = group.marks.get((message.bot_id, message.message_id))
                # Some ends give one id to several messages: only the same content is the same report.
                if entry is not None and entry.body == body:
                    conduct.replays += 1
                    return Standing.AGAIN, entry
            bot_id = message.bot_id
            for entry in group.bodies.get((body, message.time_s), ()):
                if bot_id not in entry.observers and (seq is None or entry.seq is None):
                    return self._joined(entry, message, conduct)
            if self._terms.tolerance_s or len(group.bots) > 1:
                entry = self._near(group, body, message, conduct)
                if entry is not None:
                    return self._joined(entry, message, conduct)
        entry = Entry(message, group, now, body, conduct)
        (self._plain_order if group.plain else self._order).append(entry)
        group.living += 1
        if seq is not None:
            group.seqs[seq] = entry
        else:
            self._mark(entry, message)
        if body is not None:
            group.index(entry)
        bots = group.bots
        if message.bot_id not in bots:
            bots.add(message.bot_id)
        if len(bots) > 1:
            conduct.expected += 1
        return Standing.NEW, entry

    def compared(self, message: Message, gap_s: int | None, *, is_one: bool) -> None:
        """Take in what Redis knows of other workers' reports: of the same message, of an equal one beside it, or none.

        `gap_s` is by how many seconds the times differ; None where Redis knows of none.
        """
        conduct = self._conducts[message.bot_id]
        if gap_s is None:
            conduct.first += not is_one
        elif not is_one:
            conduct.missed += 1
        elif gap_s:
            conduct.disagreed(gap_s)
        else:
            conduct.agreed += 1

    def _near(self, group: Group, body: bytes, message: Message, conduct: Conduct) -> Entry | None:
        """An entry of the second before or after, where clocks may differ; where they may not, it is only counted."""
        for time_s in (message.time_s - 1, message.time_s + 1):
            for entry in group.bodies.get((body, time_s), ()):
                if message.bot_id not in entry.observers and (message.seq is None or entry.seq is None):
                    if self._terms.tolerance_s:
                        return entry
                    # The same words, each known to one account alone: two clocks, or two messages.
                    conduct.missed += 1
                    entry.first.missed += 1
                    return None
        return None

    def _joined(self, entry: Entry, message: Message, conduct: Conduct) -> tuple[Standing, Entry]:
        seq = message.seq
        self._seen(entry, message, conduct)
        if seq is None:
            return Standing.ANOTHER, entry
        entry.seq = seq
        entry.group.seqs[seq] = entry
        return Standing.LEARNED, entry

    def _seen(self, entry: Entry, message: Message, conduct: Conduct) -> tuple[Standing, Entry]:
        observers = entry.observers
        if message.bot_id in observers:
            conduct.replays += 1
            return Standing.AGAIN, entry
        if entry.time_s == message.time_s:
            conduct.agreed += 1
            entry.first.agreed += 1
        else:
            conduct.disagreed(entry.time_s - message.time_s)
            entry.first.disagreed(entry.time_s - message.time_s)
        observers.append(message.bot_id)
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
