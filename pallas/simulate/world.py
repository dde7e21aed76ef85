"""The simulated world: accounts, groups, people, and every message with the reports it will cause.

Pure: the same options, seed and origin give the same world; nothing here knows a socket. The seed alone decides the
traffic: who is where, what is said when, and who reports it when. `origin_s`, the second the run began, moves
sequences, people and the names of messages, so that two runs against one deployment never resemble each other (a
group's sequence only rises in real life, too). A repeat is a message of its own; a copy is a second report of one
message by one account.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from pallas.simulate.options import Options

_FIRST_ACCOUNT = 1_900_000_001
_FIRST_GROUP = 700_100_201
_WRAP = 1 << 16
_BLOCKS = 1 << 15
_MEMBERS = 12
_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"
_ESCAPED = (" [1,2]&3", " a&amp;b", " [CQ:at,qq=1]", " 看这个,好吗?", " 🎉 &#91;x&#93;")
_CHATTER = ("今天天气不错", "pingpong 吗", "好的,收到 [ok] & 谢谢", "pang 1", "+1", "sping 7")


class Impl(StrEnum):
    """The protocol ends that accounts are dressed as."""

    NAPCAT = "napcat"
    LLONEBOT = "llonebot"
    LAGRANGE = "lagrange"
    GOCQ = "gocq"


@dataclass(slots=True, frozen=True)
class Account:
    """One account of the fleet and the end that speaks for it."""

    index: int
    self_id: int
    impl: Impl
    url: str
    string_form: bool
    """Messages are CQ strings instead of arrays of segments."""
    sequenced: bool
    """The end is new enough to report the group's sequence."""
    split: bool
    renew_at_s: float | None
    """When in the run the account changes to a new link, if it does."""


@dataclass(slots=True, frozen=True)
class Member:
    """A person of a group, who is no account of the fleet."""

    user_id: int
    nickname: str
    card: str
    role: str


@dataclass(slots=True, frozen=True)
class Group:
    """A group, the accounts that are in it, and its people."""

    group_id: int
    name: str
    accounts: tuple[int, ...]
    """Indices into the world's accounts."""
    members: tuple[Member, ...]
    first_seq: int


@dataclass(slots=True, frozen=True)
class Piece:
    """One part of a message, before an end gives it its form: text, at, at_all, face, image or sticker."""

    kind: str
    value: str = ""


@dataclass(slots=True, frozen=True)
class Report:
    """One account's report: after `delay_s`, and again after each of `copies_s`."""

    account: int
    delay_s: float
    copies_s: tuple[float, ...] = ()


@dataclass(slots=True, frozen=True)
class Said:
    """What a person says in a group; saying it again gives another message."""

    group: Group
    sender: Member
    pieces: tuple[Piece, ...]
    text: str
    """The typed text, joined and trimmed."""
    wanted: bool
    """`ping …`: each message must be answered once. Otherwise it is chatter."""


@dataclass(slots=True, frozen=True)
class Physical:
    """One message as its group saw it, with the reports it will cause."""

    said: Said
    at_s: float
    """Seconds after the run's start."""
    seq: int
    random: int
    repeat: bool
    reports: tuple[Report, ...]


class World:
    """Accounts and groups of one run, and its messages in the order of their time."""

    def __init__(self, options: Options, origin_s: int = 0) -> None:
        self._options = options
        self._run = f"{options.seed}:{origin_s}"
        rng = Random(f"tag:{self._run}")
        self._tag = _base36(rng.getrandbits(24))
        self._salt = rng.getrandbits(32)
        self._block = 2 + origin_s % (_BLOCKS - 2)
        self.accounts = self._fleet()
        self.groups = self._places()

    @property
    def duration_s(self) -> float:
        """Time of the last numbered message."""
        return self._options.messages / self._options.rate

    def _fleet(self) -> tuple[Account, ...]:
        options = self._options
        kinds = tuple(Impl)
        rng = Random(f"fleet:{options.seed}")
        numbers = range(options.accounts)
        # Every Lagrange has the sequence in its message id; one without would invent others.
        able = [index for index in numbers if kinds[index % len(kinds)] is not Impl.LAGRANGE]
        plain = set(rng.sample(able, min(len(able), round(options.plain * options.accounts))))
        renewing = set(rng.sample(numbers, round(options.renewals * options.accounts)))
        fleet: list[Account] = []
        for index in numbers:
            impl = kinds[index % len(kinds)]
            round_ = index // len(kinds)
            fleet.append(
                Account(
                    index=index,
                    self_id=_FIRST_ACCOUNT + options.offset + index,
                    impl=impl,
                    # Shifted by the round, so that one end's accounts are not all on one worker.
                    url=options.urls[(index + round_) % len(options.urls)],
                    string_form=impl is Impl.GOCQ or (impl is Impl.LLONEBOT and round_ % 2 == 1),
                    sequenced=index not in plain,
                    split=options.split and impl is Impl.LAGRANGE,
                    renew_at_s=rng.uniform(0.2, 0.8) * self.duration_s if index in renewing else None,
                )
            )
        return tuple(fleet)

    def _places(self) -> tuple[Group, ...]:
        rng, own = Random(f"places:{self._options.seed}"), Random(f"places:{self._run}")
        seats: list[set[int]] = [self._company(rng, number) for number in range(self._options.groups)]
        for account in set(range(len(self.accounts))).difference(*seats):
            rng.choice(seats).add(account)
        return tuple(
            Group(
                group_id=_FIRST_GROUP + self._options.offset + number,
                name=f"simulated group {number + 1}",
                accounts=tuple(sorted(seat)),
                members=_people(own, number),
                # Every third group passes the end of its 16 bits after a few messages.
                first_seq=self._block * _WRAP
                + (_WRAP - own.randint(2, 12) if number % 3 == 0 else own.randrange(_WRAP - 16)),
            )
            for number, seat in enumerate(seats)
        )

    def _company(self, rng: Random, number: int) -> set[int]:
        """The accounts of one group: two or more, on different workers where there are several."""
        fleet = self.accounts
        first = fleet[number % len(fleet)]
        seat = {first.index}
        elsewhere = [a.index for a in fleet if a.url != first.url] or [a.index for a in fleet if a is not first]
        if elsewhere:
            seat.add(rng.choice(elsewhere))
        most = min(len(fleet), 8)
        if most > len(seat):
            rest = [a.index for a in fleet if a.index not in seat]
            seat.update(rng.sample(rest, rng.randint(0, most - len(seat))))
        return seat

    def messages(self) -> Iterator[Physical]:
        """Every message of the run, rising in time; made as they are asked for, the same at each call."""
        options = self._options
        rng = Random(f"messages:{options.seed}")
        seqs = {group.group_id: group.first_seq for group in self.groups}
        recent: dict[int, deque[Said]] = {group.group_id: deque(maxlen=4) for group in self.groups}
        last: Physical | None = None
        for number in range(options.messages):
            at_s = number / options.rate
            repeat = last is not None and rng.random() < options.repeats
            if last is None or not repeat:
                said = self._ping(rng, number)
            elif rng.random() < 0.5:
                # On the heels of the last one: at low rates, too, both fall into one second.
                said, at_s = last.said, last.at_s + min(0.3, 0.5 / options.rate) * rng.uniform(0.05, 0.9)
            else:
                said = rng.choice(recent[rng.choice(self.groups).group_id] or (last.said,))
            last = self._sent(rng, said, at_s, repeat, seqs)
            recent[said.group.group_id].append(said)
            yield last
            for _ in range(int((number + 1) * options.chatter) - int(number * options.chatter)):
                yield self._sent(rng, self._chat(rng), at_s, False, seqs)

    def _ping(self, rng: Random, number: int) -> Said:
        """A new numbered message: mostly text alone, else with what people add to it."""
        group = rng.choice(self.groups)
        dice = rng.random()
        text = f"ping {self._tag}-{number:06d}" + (rng.choice(_ESCAPED) if dice > 0.8 else "")
        pieces = [Piece("text", text)]
        if dice < 0.06:
            pieces = [Piece("at", str(self._mentioned(rng, group))), Piece("text", " " + text)]
        elif dice < 0.12:
            pieces.append(Piece("at", str(self._mentioned(rng, group))))
        elif dice < 0.18:
            pieces.append(Piece("face", str(rng.randint(1, 200))))
        elif dice < 0.24 or dice > 0.95:
            pieces.append(_picture(rng, "image"))
        return Said(group, rng.choice(group.members), tuple(pieces), text, wanted=True)

    def _mentioned(self, rng: Random, group: Group) -> int:
        if rng.random() < 0.5:
            return rng.choice(group.members).user_id
        return self.accounts[rng.choice(group.accounts)].self_id

    def _chat(self, rng: Random) -> Said:
        """Something that no handler wants."""
        group = rng.choice(self.groups)
        text = rng.choice(_CHATTER)
        pieces: tuple[Piece, ...] = (Piece("text", text),)
        dice = rng.random()
        if dice < 0.1:
            pieces = (Piece("at_all"), *pieces)
        elif dice < 0.3:
            pieces, text = (_picture(rng, "image" if dice < 0.2 else "sticker"),), ""
        return Said(group, rng.choice(group.members), pieces, text, wanted=False)

    def _sent(self, rng: Random, said: Said, at_s: float, repeat: bool, seqs: dict[int, int]) -> Physical:
        """A message of its own: with the server's number for it, and who will report it when."""
        options = self._options
        group = said.group
        seq = seqs[group.group_id]
        # What our accounts do not report, such as their own answers, takes numbers of the group, too.
        seqs[group.group_id] = seq + rng.choice((1, 1, 1, 2, 3))
        heard = [index for index in group.accounts if rng.random() >= options.losses] or [rng.choice(group.accounts)]
        reports: list[Report] = []
        for index in heard:
            # Mostly soon, sometimes late: squared, a fifth of the reports come in the last third of the spread.
            delay_s = options.spread_s * rng.random() ** 2
            copies: tuple[float, ...] = ()
            if rng.random() < options.duplicates:
                copies = (delay_s if rng.random() < 0.5 else delay_s + options.spread_s * rng.random(),)
            reports.append(Report(index, delay_s, copies))
        return Physical(said, at_s, seq, rng.getrandbits(32) ^ self._salt, repeat, tuple(reports))


def _picture(rng: Random, kind: str) -> Piece:
    return Piece(kind, f"{rng.getrandbits(128):032X}")


def _people(rng: Random, number: int) -> tuple[Member, ...]:
    return tuple(
        Member(
            user_id=20_000_000 + rng.randrange(900_000_000),
            nickname=f"person-{number + 1}-{place + 1}",
            card=rng.choice(("", f"card-{place + 1}", "名片,[" + str(place) + "]&")),
            role="owner" if place == 0 else "admin" if place == 1 else "member",
        )
        for place in range(_MEMBERS)
    )


def _base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, rest = divmod(number, 36)
        digits = _BASE36[rest] + digits
    return digits
