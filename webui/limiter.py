"""Slows down whoever guesses: a few free failures, then waits that double.

Only failures count, and the table is bounded: an attacker with many addresses may push out others' records but
never makes it grow. Neighbours behind one IPv6 /64 are one guesser.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pallas.clock import Clock

_FREE_FAILURES = 5
_FORGET_AFTER_S = 900.0
_FIRST_WAIT_S = 30.0
_LONGEST_WAIT_S = 900.0
_MOST_PEERS = 1024


@dataclass(slots=True, frozen=True)
class _Record:
    failures: int
    failed_at: float
    blocked_until: float


class SignInLimiter:
    """Counts failed sign-ins per peer address."""

    def __init__(self, clock: Clock) -> None:
        """Nobody has failed yet."""
        self._clock = clock
        self._records: dict[str, _Record] = {}

    def __len__(self) -> int:
        """How many peers are remembered."""
        return len(self._records)

    def wait_s(self, peer: str) -> float:
        """Seconds until `peer` may try again; 0 where it may now."""
        record = self._records.get(_guesser(peer))
        return 0.0 if record is None else max(0.0, record.blocked_until - self._clock.mono())

    def failed(self, peer: str) -> None:
        """One wrong code or token from `peer`."""
        now = self._clock.mono()
        guesser = _guesser(peer)
        record = self._records.pop(guesser, None)
        remembered = record is not None and now - max(record.failed_at, record.blocked_until) < _FORGET_AFTER_S
        failures = 1 + (record.failures if record is not None and remembered else 0)
        self._records[guesser] = _Record(failures, now, now + wait_after(failures))
        if len(self._records) > _MOST_PEERS:
            # Insertion order is order of the last failure: the first one failed longest ago.
            del self._records[next(iter(self._records))]

    def succeeded(self, peer: str) -> None:
        """`peer` proved who it is: its failures are forgotten."""
        self._records.pop(_guesser(peer), None)


def wait_after(failures: int) -> float:
    """Seconds to wait after so many failures in a row."""
    beyond = failures - _FREE_FAILURES
    if beyond < 0:
        return 0.0
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(beyond, 16)))


def _guesser(peer: str) -> str:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)
