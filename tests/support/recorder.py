"""Claims of several workers, each call written down as a history for `tests.support.history`."""

from __future__ import annotations

import asyncio
import struct

from pallas.claim import Claim, Verdict
from pallas.errors import LeaseLost
from tests.support.claimants import Claimant
from tests.support.history import Kind, Op, Said, Token
from tests.support.opened import FakeEpoch

_SAID = {Verdict.WON: Said.OK, Verdict.LOST: Said.NO, Verdict.UNKNOWN: Said.UNKNOWN}


class BlindEpoch(FakeEpoch):
    """A worker that does not see its own lapse: what keeps it from harm is Redis alone."""

    def allows(self, token: bytes) -> bool:
        return bool(token)


class Recorder:
    """The history of one experiment; `lapse` says from when on an epoch may be replaced."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.lapses: dict[int, float] = {}
        self._now = asyncio.get_running_loop().time

    def lapse(self, epoch: int) -> None:
        """The others may count this epoch as dead from now on."""
        self.lapses.setdefault(epoch, self._now())

    async def take(self, who: Claimant, key: str, claim: Claim) -> bool:
        """Claim the message."""
        invoked = self._now()
        verdict = await who.take(claim)
        self._note(Kind.TAKE, key, claim, invoked, _SAID[verdict])
        return verdict is Verdict.WON

    async def take_over(self, who: Claimant, key: str, claim: Claim) -> bool:
        """Take it from the holder that was last seen."""
        invoked = self._now()
        verdict = await who.claims.take_over(claim)
        self._note(Kind.TAKE, key, claim, invoked, _SAID[verdict])
        return verdict is Verdict.WON

    async def effect(self, who: Claimant, key: str, claim: Claim) -> bool:
        """Record an effect."""
        invoked = self._now()
        try:
            await who.claims.effect(claim)
        except LeaseLost:
            self._note(Kind.EFFECT, key, claim, invoked, Said.NO)
            return False
        self._note(Kind.EFFECT, key, claim, invoked, Said.OK)
        return True

    def end(self, who: Claimant, key: str, claim: Claim) -> None:
        """Say that it was handled; nobody hears the answer."""
        now = self._now()
        self._note(Kind.END, key, claim, now, Said.UNKNOWN)
        who.handled(claim)

    def release(self, who: Claimant, key: str, claim: Claim) -> None:
        """Give it back; nobody hears the answer."""
        self._note(Kind.RELEASE, key, claim, self._now(), Said.UNKNOWN)
        who.claims.release(claim)

    def _note(self, kind: Kind, key: str, claim: Claim, invoked: float, said: Said) -> None:
        shard, epoch, nonce = struct.unpack(">HLL", claim.token)
        token: Token = (shard, epoch, nonce)
        self.ops.append(Op(kind, key, token, invoked, self._now(), said))
