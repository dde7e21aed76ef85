"""Who holds a message: one holder at a time, decided in Redis, remembered after it is done.

An entry is won by the first report that reaches Redis (`entry_claim.lua`; `entry_match.lua` where an end reports no
sequences). Whole tokens are compared: own token coming back means "won earlier, the reply was lost", so a claim whose
reply is late or lost is asked again until Redis has said yes or no: Unknown is never turned into Lost. Effects are
recorded before they happen; nothing is completed under an epoch that may have lapsed. Where the holder's epoch has
died before any effect, whoever saw the message may become its holder in one compare-and-set (`entry_take.lua`).
"""

from __future__ import annotations

import asyncio
import random
import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from pallas.claim import SLOT_S, Claim, Epoch, Verdict, nobody_of
from pallas.endings import Endings
from pallas.errors import LeaseLost, RedisError, ReplyError
from pallas.faults import Faults, Point
from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from pallas.model import Outcome, Reason
from pallas.redis import Command, Redis, Script, script
from pallas.tasks import Tasks

_log = structlog.get_logger()
_FEW_TOKENS = 1024
_WON, _WON_BESIDE = 1, 2
_DECIDED = (_WON, _WON_BESIDE, -1)
_NOTHING_RAN = frozenset({"NOSCRIPT", "TRYAGAIN"})


class Claims:
    """Claims of one worker."""

    def __init__(
        self,
        redis: Redis,
        epoch: Epoch,
        tasks: Tasks,
        meters: Meters,
        *,
        ttl_s: int,
        faults: Faults | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._redis = redis
        self._epoch = epoch
        self._meters = meters
        self._ttl_s = ttl_s
        self._claim = script("entry_claim")
        self._match = script("entry_match")
        self._mark = script("entry_mark")
        self._take_over = script("entry_take")
        self._faults = faults
        self._endings = Endings(redis, epoch, tasks, meters, faults)
        self._issued: dict[bytes, weakref.ref[Claim]] = {}
        self._most_issued = _FEW_TOKENS
        self.complaints = LimitedLog(LogLimit(per_min=1), _log)

    @property
    def unsettled(self) -> int:
        """Ends of messages that Redis has not confirmed yet."""
        return len(self._endings)

    def ask(self, claim: Claim, body: Callable[[], bytes], then: Callable[[Any], None]) -> None:
        """Ask once and return; `then` gets Redis' answer (see `verdict`), or None where nothing was asked or ran."""
        if claim.seq is None and claim.body is None:
            claim.body = body()
        try:
            self._refresh(claim)
        except LeaseLost:
            then(None)
        else:
            self._redis.ask(self._attempt(claim)[1], then)

    @staticmethod
    def verdict(claim: Claim, answer: Any) -> Verdict | None:
        """What a first answer says; None where `take` must go on with it."""
        if answer == _WON:
            return Verdict.WON
        if type(answer) is bytes and not claim.former:
            try:
                claim.lost(answer)
            except ReplyError:
                return None
            return Verdict.LOST
        return None

    async def take(self, claim: Claim, body: Callable[[], bytes], patience_s: float, *, answer: Any = None) -> Verdict:
        """Ask until Redis has decided, for `patience_s` at most.

        `body` is called only where contents must be compared. `answer` is what `ask` was given already.
        """
        if claim.seq is None and claim.body is None:
            claim.body = body()
        if isinstance(answer, ReplyError) and answer.code in _NOTHING_RAN:
            answer = None
        pause = 0.0
        limit = self._loop.time() + patience_s
        redis = self._redis
        while True:
            try:
                if answer is None:
                    self._refresh(claim)
                    answer = await redis.run(*self._attempt(claim))
                elif isinstance(answer, RedisError):
                    raise answer
                reply, answer = answer, None
                if isinstance(reply, bytes):
                    claim.lost(reply)
                elif reply not in _DECIDED:
                    raise ReplyError(f"ERR a claim in {claim.space} was answered with a {type(reply).__name__}")
            except LeaseLost:
                try:
                    async with asyncio.timeout_at(limit):
                        await self._epoch.held()
                except TimeoutError:
                    return Verdict.UNKNOWN
                continue
            except RedisError as error:
                answer = None
                self._undecided(error)
                if self._loop.time() > limit:
                    # It may be ours without our knowing: then it ends here as well.
                    self.end(claim, Outcome.DROPPED, Reason.REDIS_UNAVAILABLE)
                    return Verdict.UNKNOWN
                redis = self._redis.patient
                pause = min(1.0, pause * 2 + 0.05)
                await asyncio.sleep(pause * (1 + random.random() / 4))
                continue
            if reply == _WON:
                return Verdict.WON
            if reply == _WON_BESIDE:
                claim.gap_s = 1
                return Verdict.WON
            if reply == -1:
                claim.body = body()
                continue
            if not claim.former or claim.holder[1:] not in claim.former:
                return Verdict.LOST
            # Won earlier, under an epoch of ours that has died since.
            verdict = await self.take_over(claim)
            if verdict is not Verdict.UNKNOWN:
                return verdict

    async def take_over(self, claim: Claim) -> Verdict:
        """Become the holder in the place of the one last seen (`claim.holder`), if it has not moved on.

        That its epoch is dead is for the caller to know. To be asked again with the same claim where it is UNKNOWN.
        """
        try:
            self._refresh(claim)
            bucket = claim.bucket
            command = self._take_over.command(claim.home, bucket.open, claim.field, claim.holder[1:], claim.token)
            reply = await self._redis.patient.run(self._take_over, command)
        except LeaseLost:
            return Verdict.UNKNOWN
        except RedisError as error:
            self._undecided(error)
            return Verdict.UNKNOWN
        return Verdict.WON if reply == 1 else Verdict.LOST

    def _refresh(self, claim: Claim) -> None:
        """Give the claim a token of the epoch that is held now. Raises LeaseLost where none is."""
        if claim.token and self._epoch.allows(claim.token):
            return
        fresh = self._epoch.token()
        if claim.token:
            claim.former += (claim.token,)
        claim.token = fresh
        self._issued[fresh] = weakref.ref(claim)
        if len(self._issued) > self._most_issued:
            self._issued = {token: claim for token, claim in self._issued.items() if claim() is not None}
            self._most_issued = 2 * len(self._issued) + _FEW_TOKENS

    async def look(self, claims: Sequence[Claim]) -> list[bool]:
        """See who holds the entries of lost claims now; False where Redis did not say.

        An entry that newer ones pushed out of its home is followed into `open`, by the tokens that the claim knows.
        """
        homes = await self._read([("HGET", claim.home, claim.field) for claim in claims])
        seen = [_holder(claim, home) for claim, home in zip(claims, homes, strict=True)]
        out = [place for place, holder in enumerate(seen) if holder == b"" and _known(claims[place])]
        states = await self._read([("HMGET", claims[place].bucket.open, *_known(claims[place])) for place in out])
        for place, told in zip(out, states, strict=True):
            seen[place] = None if isinstance(told, BaseException) else _open_under(_known(claims[place]), told)
        for claim, holder, home in zip(claims, seen, homes, strict=True):
            if holder is not None:
                claim.holder = holder
                # Whoever took it since may have sent, also where it has ended and newer ones pushed it out: then the
                # field is there still. Only what Redis lost with its whole field may be claimed anew.
                claim.released = claim.released and (holder[1:] in _own(claim) if holder else home is None)
        return [holder is not None for holder in seen]

    async def _read(self, commands: Sequence[Command]) -> list[Any]:
        asked = (self._redis.patient.submit(*command) for command in commands)
        return await asyncio.gather(*asked, return_exceptions=True)

    async def win_back(self, claim: Claim, body: Callable[[], bytes]) -> Verdict:
        """Claim a message anew that was given back and that Redis has forgotten since, with all it knew."""
        if claim.body is None:
            claim.body = body()
        try:
            self._refresh(claim)
            reply = await self._redis.patient.run(*self._attempt(claim))
        except LeaseLost:
            return Verdict.UNKNOWN
        except RedisError as error:
            self._undecided(error)
            return Verdict.UNKNOWN
        if reply in {_WON, _WON_BESIDE}:
            return Verdict.WON
        claim.lost(reply)
        return Verdict.LOST

    def _claiming(self, claim: Claim) -> Command:
        bucket, seq, token = claim.bucket, claim.seq or 0, claim.token
        home, field = bucket.block(seq), seq & 63
        claim.home, claim.field = home, field
        return self._claim.command(
            home, bucket.open, bucket.books, bucket.plain,
            token, field, claim.record(), self._ttl_s, claim.space, seq,
        )  # fmt: skip

    def _matching(self, claim: Claim) -> Command:
        bucket, seq = claim.bucket, claim.seq
        hour, content = claim.content_at(claim.time_s)
        shift = claim.reach()
        aside, beside = claim.content_at(claim.time_s + shift) if shift else (hour, b"")
        block = bucket.block(seq or 0)
        if seq is not None:
            claim.home, claim.field = block, seq & 63
        else:
            claim.home, claim.field = hour, content
        return self._match.command(
            block, hour, aside, bucket.open, bucket.books, bucket.plain,
            claim.token, "" if seq is None else seq & 63, claim.record(), self._ttl_s,
            claim.space, "" if seq is None else seq, content, claim.time_s % SLOT_S, beside, shift, claim.tolerance_s,
            claim.observer(),
        )  # fmt: skip

    async def effect(self, claim: Claim) -> None:
        """Record that an effect is about to happen; returns only when it may. Raises LeaseLost when it must not."""
        pause = 0.05
        if self._faults is not None:
            self._faults.hit(Point.EFFECT)
        token, redis = claim.token, self._redis
        while True:
            self.check(claim)
            if claim.token is not token:
                raise LeaseLost(f"the message in {claim.space} was given back meanwhile: nothing is sent for it")
            try:
                bucket = claim.bucket
                command = self._mark.command(claim.home, bucket.open, bucket.books, claim.field, token, "e", "")
                (reply,) = await redis.run(self._mark, command)
            except RedisError as error:
                self._undecided(error)
                redis = self._redis.patient
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
                continue
            if reply == -1 and claim.token is token and await self._won_again(claim):
                # Redis lost the entry and nobody else has it: recorded anew, so that the effect is, too.
                continue
            if reply < 1:
                self._meters.fenced()
                raise LeaseLost(f"the message in {claim.space} has another holder by now: nothing is sent for it")
            if self._faults is not None:
                self._faults.hit(Point.RECORDED)
            self.check(claim)
            if claim.token is token:
                claim.begun = True
                return

    async def _won_again(self, claim: Claim) -> bool:
        try:
            return await self._redis.run(*self._attempt(claim)) in {_WON, _WON_BESIDE}
        except RedisError as error:
            self._undecided(error)
            return True

    def _attempt(self, claim: Claim) -> tuple[Script, Command]:
        if claim.body is None:
            return self._claim, self._claiming(claim)
        return self._match, self._matching(claim)

    def _undecided(self, error: RedisError) -> None:
        self._meters.claim_unknown(error)
        if isinstance(error, ReplyError):
            self.complaints.warning(
                "claim.refused", error.code, error=str(error), hint="messages wait until Redis takes writes again"
            )

    def check(self, claim: Claim) -> None:
        """Raises LeaseLost where the claim's epoch may have lapsed. To be called right before every send."""
        if not self._epoch.allows(claim.token):
            self._meters.fenced()
            raise LeaseLost(
                f"shard {self._epoch.shard_id}: the lease under which the message in {claim.space} was claimed "
                "may have lapsed: nothing is sent or completed for it"
            )

    def end(self, claim: Claim, outcome: Outcome, reason: Reason) -> None:
        """Record how the message ended; repeated by itself until Redis has confirmed it."""
        self._endings.end(claim, outcome, reason)

    def may_end(self, claim: Claim) -> bool:
        """Whether this worker may still say how the message ended: it holds it, or an effect of its own is recorded."""
        return claim.begun or self._epoch.allows(claim.token)

    def unknown(self, claim: Claim, *, at: float, **about: object) -> None:
        """Record that what was sent for the message may or may not have arrived.

        `at` (Unix seconds) and `about` are kept in a list, so that a person knows where to look.
        """
        self._endings.unknown(claim, at=at, **about)

    def release(self, claim: Claim) -> None:
        """Give the message back, for which nothing was sent: anybody may take it, also this worker with this claim."""
        self._endings.release(claim)
        claim.released = True
        claim.holder = b"c" + claim.token
        claim.former += (claim.token,)
        claim.token = b""

    @property
    def epoch(self) -> int:
        """The epoch under which this worker claims now; 0 before the first."""
        return self._epoch.epoch

    def has_in_hand(self, token: bytes) -> bool:
        """Whether anything in this worker still goes on with the message that was claimed with the token."""
        issued = self._issued.get(token)
        claim = issued() if issued is not None else None
        # What was given back is no longer held, and what has ended is only remembered.
        return claim is not None and claim.token == token and not self._endings.has_told(token)

    def end_again(self, token: bytes) -> bool:
        """Tell again how a message ended whose end Redis forgot after confirming it; False where we do not know."""
        return self._endings.tell_forgotten(token)

    async def settled(self, within_s: float) -> bool:
        """Wait until Redis has confirmed every end; False if it did not within the time."""
        return await self._endings.confirmed(within_s)


def _holder(claim: Claim, home: Any) -> bytes | None:
    """State and token of whoever holds the claim's entry by its home; None where that was not said."""
    if isinstance(home, BaseException):
        return None
    try:
        return claim.holder_in(home or b"")
    except (ValueError, struct.error):
        # A foreign value: whoever meets it in a script names it.
        return None


def _own(claim: Claim) -> tuple[bytes, ...]:
    """The claim's tokens, and what each became where it was given back."""
    return _with_given_back(*((claim.token, *claim.former) if claim.token else claim.former))


def _known(claim: Claim) -> tuple[bytes, ...]:
    """All tokens under which the entry may be open, as far as the claim knows."""
    return _own(claim) + (_with_given_back(claim.holder[1:]) if claim.holder else ())


def _with_given_back(*tokens: bytes) -> tuple[bytes, ...]:
    return (*tokens, *(nobody_of(token) for token in tokens))


def _open_under(tokens: Sequence[bytes], states: Sequence[bytes | None]) -> bytes:
    """State and token of the one that is open; empty where none is."""
    return next((state[:1] + token for token, state in zip(tokens, states, strict=True) if state), b"")
