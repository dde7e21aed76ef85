"""Traffic of a fleet, report by report, and what became of each message: what identity is measured with.

The events are those of the four simulated ends, read by the product's own parser. Which message a report is of is known
here and nowhere in the product.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import orjson

from pallas.model import Message
from pallas.onebot.ends import End
from pallas.onebot.wire import parse
from pallas.simulate.ends import COSTUMES
from pallas.simulate.world import Account, Group, Impl, Member, Physical, Piece, Said
from tests.support.claimants import TIME_S

_FIRST_ACCOUNT = 1_900_000_001
_FIRST_GROUP = 700_200_301
_GROUPS = 6
_MEMBERS = 12
_COMMON = ("+1", "签到", "哈哈", "hi", "6", "早", "在吗", "好的", "?", "ping", "牛牛出列", "晚安")


@dataclass(slots=True, frozen=True)
class Seat:
    """An account of the fleet: its end, whether that reports sequences, and its worker."""

    impl: Impl
    sequenced: bool
    worker: int


@dataclass(slots=True, frozen=True)
class Traffic:
    """How much is said, and how badly it is reported."""

    messages: int = 6000
    repeats: float = 0.15
    losses: float = 0.01
    replays: float = 0.01
    off_clocks: float = 0.0
    """Share of the reports whose time is a second off."""
    per_s: float = 2.0
    late_s: float = 0.15
    """Mean delay of a report; one in fifty takes up to three seconds."""
    seed: int = 1


@dataclass(slots=True, frozen=True)
class Arrival:
    """One report, when it reaches its worker."""

    at_s: float
    physical: int
    account: int
    message: Message


@dataclass(slots=True, frozen=True)
class Score:
    """What became of messages that somebody saw; counted among messages that nothing but their sequence tells apart."""

    seen: int
    handled: int
    swallowed: int
    doubled: int
    swaps: int
    """Of two equal messages one was handled twice and the other never, which nobody can see."""
    below: int
    """Handled less often than one single account saw it."""

    def as_dict(self) -> dict[str, float]:
        """Counts, and shares in per cent."""
        share = 100 / max(1, self.seen)
        return {
            "physical": self.seen,
            "handled": self.handled,
            "swallowed": self.swallowed,
            "doubled": self.doubled,
            "swaps": self.swaps,
            "swallowed_percent": round(self.swallowed * share, 2),
            "doubled_percent": round(self.doubled * share, 2),
            "swaps_percent": round(self.swaps * share, 2),
        }


def said_in(traffic: Traffic) -> list[Physical]:
    """The messages, in the order in which their groups saw them."""
    rng = Random(f"said:{traffic.seed}")
    groups = [
        Group(
            _FIRST_GROUP + number,
            f"group {number}",
            (),
            tuple(Member(80_001 + number * 100 + one, f"member {one}", "", "member") for one in range(_MEMBERS)),
            rng.randrange(1, 1 << 17),
        )
        for number in range(_GROUPS)
    ]
    told: list[tuple[float, Group, Member, str]] = []
    for number in range(traffic.messages):
        at_s = number / traffic.per_s + rng.random()
        if told and rng.random() < traffic.repeats:
            # The same person says the same once more: at once, or some seconds later.
            at_s, group, member, text = rng.choice(told[-20:])
            told.append((at_s + rng.choice([0.0, 0.2, 0.9, 1.0, 2.0, 3.0]), group, member, text))
            continue
        group = rng.choice(groups)
        text = rng.choice(_COMMON) if rng.random() < 0.5 else f"words {number}"
        told.append((at_s, group, rng.choice(group.members), text))
    counts: Counter[int] = Counter()
    said = []
    for at_s, group, member, text in sorted(told, key=lambda one: one[0]):
        counts[group.group_id] += 1
        seq = group.first_seq + counts[group.group_id]
        words = Said(group, member, (Piece("text", text),), text, wanted=True)
        said.append(Physical(words, at_s, seq, rng.getrandbits(31), repeat=False, reports=()))
    return said


def arrivals(fleet: tuple[Seat, ...], said: list[Physical], traffic: Traffic) -> list[Arrival]:
    """The reports of all accounts, in the order in which they arrive."""
    rng = Random(f"reported:{traffic.seed}")
    accounts = [
        Account(
            at, _FIRST_ACCOUNT + at, seat.impl, "", seat.impl is Impl.GOCQ, seat.sequenced, split=False, renew_at_s=None
        )
        for at, seat in enumerate(fleet)
    ]
    reports = []
    for number, physical in enumerate(said):
        for account in accounts:
            if rng.random() < traffic.losses:
                continue
            time_s = TIME_S + int(physical.at_s)
            if rng.random() < traffic.off_clocks:
                time_s += rng.choice([-1, 1])
            event = COSTUMES[account.impl].report(account, physical, time_s)
            message = parse(orjson.dumps(event), bot_id=str(account.self_id), end=End(account.impl.value))
            assert isinstance(message, Message)
            late_s = rng.expovariate(1 / traffic.late_s) if rng.random() > 0.02 else rng.uniform(0.5, 3.0)
            reports.append(Arrival(physical.at_s + late_s, number, account.index, message))
            if rng.random() < traffic.replays:
                again = parse(orjson.dumps(event), bot_id=str(account.self_id), end=End(account.impl.value))
                assert isinstance(again, Message)
                reports.append(Arrival(physical.at_s + late_s + rng.uniform(0.0, 300.0), number, account.index, again))
    return sorted(reports, key=lambda one: one.at_s)


def score(said: list[Physical], reports: Iterable[Arrival], wins: Counter[int]) -> Score:
    """Compare what was handled, by message, with what was said and seen."""
    seen_by: dict[int, set[int]] = defaultdict(set)
    for one in reports:
        seen_by[one.physical].add(one.account)
    twins: dict[tuple[int, int, str, int], list[int]] = defaultdict(list)
    for number in seen_by:
        words = said[number].said
        twins[words.group.group_id, words.sender.user_id, words.text, int(said[number].at_s)].append(number)
    handled = swallowed = doubled = swaps = below = 0
    for numbers in twins.values():
        won = sum(wins[number] for number in numbers)
        lacking = max(0, len(numbers) - won)
        handled += won
        swallowed += lacking
        doubled += max(0, won - len(numbers))
        swaps += sum(not wins[number] for number in numbers) - lacking
        most = max(Counter(account for number in numbers for account in seen_by[number]).values())
        below += max(0, most - won)
    return Score(len(seen_by), handled, swallowed, doubled, swaps, below)
