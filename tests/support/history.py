"""Checks histories of claims: who asked for what, between when and when, and what was answered.

Keys are independent, so each is a register of its own: one holder at a time, a new one only where the old one's epoch
had lapsed or gave the key back, nobody after an effect or an end, and no effect by a holder that another had replaced.
An answer that never came may have been either. Knows nothing of how the product decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import permutations

Token = tuple[int, int, int]
"""Shard, epoch, and a number of this attempt's own."""


class Kind(Enum):
    """What was asked."""

    TAKE = "take"
    EFFECT = "effect"
    END = "end"
    RELEASE = "release"


class Said(Enum):
    """What was answered."""

    OK = "ok"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(slots=True, frozen=True)
class Op:
    """One call; it took its effect at some moment between the two times, if it had one."""

    kind: Kind
    key: str
    token: Token
    invoked: float
    returned: float
    said: Said = Said.OK


def violations(ops: Iterable[Op], lapses: Mapping[int, float]) -> list[str]:
    """What in the history cannot be, one sentence each; `lapses` tells from when each dead epoch may be replaced."""
    by_key: dict[str, list[Op]] = defaultdict(list)
    by_shard: dict[int, list[Op]] = defaultdict(list)
    for op in sorted(ops, key=lambda op: op.invoked):
        by_key[op.key].append(op)
        by_shard[op.token[0]].append(op)
    found = [each for key, own in by_key.items() for each in _holds(key, own, lapses)]
    found += [each for key, own in by_key.items() for each in _effects(key, own)]
    return found + [each for shard, own in by_shard.items() for each in _epochs(shard, own)]


def _of(ops: Iterable[Op], kind: Kind, *said: Said) -> list[Op]:
    return [op for op in ops if op.kind is kind and op.said in said]


def _holds(key: str, ops: list[Op], lapses: Mapping[int, float]) -> Iterator[str]:
    """Two holders, the first of whom could not have let go before the second one took."""
    takes = list({op.token: op for op in reversed(_of(ops, Kind.TAKE, Said.OK))}.values())
    for first, second in permutations(takes, 2):
        # Where the two overlap in time, either may have been the first; the one order that can be is enough.
        if first.invoked > second.invoked or _could_follow(second, first, ops, lapses):
            continue
        if second.invoked <= first.returned and _could_follow(first, second, ops, lapses):
            continue
        yield f"{key}: {second.token} became the holder while {first.token} held it"


def _could_follow(second: Op, first: Op, ops: list[Op], lapses: Mapping[int, float]) -> bool:
    if lapses.get(first.token[1], float("inf")) <= second.returned:
        return True
    given_back = _of(ops, Kind.RELEASE, Said.OK, Said.UNKNOWN)
    return any(op.token == first.token and op.invoked <= second.returned for op in given_back)


def _effects(key: str, ops: list[Op]) -> Iterator[str]:
    """Effects and ends of those who did not hold it any more, and holders after an effect or an end."""
    takes = _of(ops, Kind.TAKE, Said.OK)
    for op in _of(ops, Kind.EFFECT, Said.OK) + _of(ops, Kind.END, Said.OK):
        own = [take for take in takes if take.token == op.token]
        if not own and not _of([each for each in ops if each.token == op.token], Kind.TAKE, Said.UNKNOWN):
            yield f"{key}: {op.kind.value} of {op.token}, which never held it"
        for take in takes:
            if take.token == op.token or not own:
                continue
            if take.invoked > own[0].returned and take.returned < op.invoked:
                yield f"{key}: {op.kind.value} of {op.token} after {take.token} had replaced it"
            if take.invoked > op.returned:
                yield f"{key}: {take.token} became the holder after {op.kind.value} of {op.token}"
    ended = {op.token for op in _of(ops, Kind.END, Said.OK)}
    if len(ended) > 1:
        yield f"{key}: ended by {len(ended)} holders"


def _epochs(shard: int, ops: list[Op]) -> Iterator[str]:
    """A worker that acts under an epoch older than one it had acted under before."""
    newest, since = 0, 0.0
    for op in sorted(ops, key=lambda op: op.returned):
        if op.said is not Said.OK:
            continue
        if op.token[1] > newest:
            newest, since = op.token[1], op.returned
        elif op.token[1] < newest and op.invoked > since:
            yield f"{op.key}: shard {shard} did {op.kind.value} under epoch {op.token[1]} after {newest}"
