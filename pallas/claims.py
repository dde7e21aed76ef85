"""Who holds a message: one holder at a time, decided in Redis, remembered after it is done.

An entry is won by the first report that reaches Redis (`entry_claim.lua`; `entry_match.lua` where an end reports no
sequences). Whole tokens are compared: own token coming back means "won earlier, the reply was lost", so a claim whose
reply is late or lost is asked again until Redis has said yes or no: Unknown is never turned into Lost. Effects are
recorded before they happen; nothing is completed under an epoch that may have lapsed.
"""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, Protocol

import structlog

from pallas.errors import LeaseLost, RedisError, ReplyError
from pallas.keys import CONTENT_HOUR_S, Bucket
from pallas.log_limit import LimitedLog, LogLimit
from pallas.metrics import Meters
from pallas.model import Outcome, Reason
from pallas.redis import Command, Redis, Script, script
from pallas.tasks import Tasks, every

_log = structlog.get_logger()
_RECORD = struct.Struct(">IL").pack
_MARK = struct.Struct(">L").pack
SLOT_S = 16
_ENDS_PER_CALL = 32
_FINAL = frozenset({"ERR", "NOPERM", "WRONGTYPE"})
"""Refusals that the same command meets again; all others pass with the server's state (OOM, READONLY, MISCONF …)."""


class Verdict(Enum):
    """What Redis said of a claim."""

    WON = "won"
    LOST = "lost"
    UNKNOWN = "unknown"
    """Redis has not said anything for so long that the message is too old to be answered."""


class Epoch(Protocol):
    """The worker's lease, as claims see it."""

    shard_id: int

    def token(self) -> bytes:
        """A new token, 10 bytes: shard, epoch, nonce. Raises LeaseLost while no lease is held."""

    def allows(self, token: bytes) -> bool:
        """Whether the token's epoch is still this worker's, by its own suspend-aware clock."""

    async def held(self) -> None:
        """Wait until a lease is held."""


class Claim:
    """One report's attempt to hold its message's entry; afterwards, the way to that entry.

    `mark` names this very report (account and message id); `tolerance_s` is by how much clocks may differ, below 16.
    `body` is the digest of user and content, needed only where an end reports no sequences.
    """

    __slots__ = (
        "body",
        "bucket",
        "field",
        "former",
        "home",
        "mark",
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


class Claims:
    """Claims of one worker."""

    def __init__(self, redis: Redis, epoch: Epoch, tasks: Tasks, meters: Meters, *, ttl_s: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._redis = redis
        self._epoch = epoch
        self._meters = meters
        self._ttl_s = ttl_s
        self._claim = script("entry_claim")
        self._match = script("entry_match")
        self._mark = script("entry_mark")
        self._take_over = script("entry_take")
        self._unsettled: dict[bytes, tuple[Claim, str]] = {}
        self._settling: set[bytes] = set()
        self._ending: list[bytes] = []
        self.complaints = LimitedLog(LogLimit(per_min=1), _log)
        tasks.start(every(0.5, self._settle, name="claims.settle"), "claims.settle")

    @property
    def unsettled(self) -> int:
        """Ends of messages that Redis has not confirmed yet."""
        return len(self._unsettled)

    async def take(self, claim: Claim, body: Callable[[], bytes], patience_s: float) -> Verdict:
        """Ask until Redis has decided, for `patience_s` at most.

        `body` is called only where contents must be compared.
        """
        if claim.seq is None and claim.body is None:
            claim.body = body()
        pause = 0.0
        limit = self._loop.time() + patience_s
        while True:
            try:
                if not claim.token or not self._epoch.allows(claim.token):
                    fresh = self._epoch.token()
                    if claim.token:
                        claim.former += (claim.token,)
                    claim.token = fresh
                # Not in a coroutine of its own: the loop would step through it for each message.
                reply = await self._redis.run(*self._attempt(claim))
            except LeaseLost:
                try:
                    async with asyncio.timeout_at(limit):
                        await self._epoch.held()
                except TimeoutError:
                    return Verdict.UNKNOWN
                continue
            except RedisError as error:
                self._undecided(error)
                if self._loop.time() > limit:
                    # It may be ours without our knowing: then it ends here as well.
                    self.end(claim, Outcome.DROPPED, Reason.REDIS_UNAVAILABLE)
                    return Verdict.UNKNOWN
                pause = min(1.0, pause * 2 + 0.05)
                await asyncio.sleep(pause * (1 + random.random() / 4))
                continue
            if reply == 1:
                return Verdict.WON
            if reply == -1:
                claim.body = body()
                continue
            if not claim.former or reply[2:12] not in claim.former:
                return Verdict.LOST
            try:
                # Won earlier, under an epoch of ours that has died since: nobody else will answer it.
                if await self._taken_over(claim, reply[:1], reply[2:12]):
                    return Verdict.WON
            except RedisError as error:
                self._undecided(error)
                continue
            return Verdict.LOST

    async def _taken_over(self, claim: Claim, kind: bytes, old: bytes) -> bool:
        """Move an entry of a dead epoch of ours to the claim's token; False where it has moved on."""
        if kind == b"t":
            claim.home = claim.bucket.hour(claim.time_s)
            claim.field = (claim.body or b"") + bytes((claim.time_s % CONTENT_HOUR_S // SLOT_S,))
        command = self._take_over.command(claim.home, claim.bucket.open, claim.field, old, claim.token)
        return bool(await self._redis.run(self._take_over, command) == 1)

    def _claiming(self, claim: Claim) -> Command:
        bucket, seq, token = claim.bucket, claim.seq or 0, claim.token
        home, field = bucket.block(seq), seq & 63
        claim.home, claim.field = home, field
        return self._claim.command(
            home, bucket.open, bucket.books, bucket.plain,
            token, field, b"c" + token + _RECORD(claim.time_s, claim.sender), self._ttl_s, claim.space, seq,
        )  # fmt: skip

    def _matching(self, claim: Claim) -> Command:
        bucket, seq, token = claim.bucket, claim.seq, claim.token
        hour = bucket.hour(claim.time_s)
        second = claim.time_s % CONTENT_HOUR_S
        slot, within = divmod(second, SLOT_S)
        body = claim.body or b""
        content = body + bytes((slot,))
        aside, beside, shift = hour, b"", 0
        if within < claim.tolerance_s:
            shift = -SLOT_S
        elif within + claim.tolerance_s >= SLOT_S:
            shift = SLOT_S
        if shift:
            there = claim.time_s + shift
            aside, beside = bucket.hour(there), body + bytes((there % CONTENT_HOUR_S // SLOT_S,))
        block = bucket.block(seq or 0)
        if seq is not None:
            claim.home, claim.field = block, seq & 63
        else:
            claim.home, claim.field = hour, content
        return self._match.command(
            block, hour, aside, bucket.open, bucket.books, bucket.plain,
            token, "" if seq is None else seq & 63, b"c" + token + _RECORD(claim.time_s, claim.sender), self._ttl_s,
            claim.space, "" if seq is None else seq, content, within, beside, shift, claim.tolerance_s,
            token[2:6] + _MARK(zlib.crc32(claim.mark.encode())),
        )  # fmt: skip

    async def effect(self, claim: Claim) -> None:
        """Record that an effect is about to happen; returns only when it may. Raises LeaseLost when it must not."""
        pause = 0.05
        while True:
            self.check(claim)
            try:
                bucket = claim.bucket
                command = self._mark.command(claim.home, bucket.open, bucket.books, claim.field, claim.token, "e", "")
                (reply,) = await self._redis.run(self._mark, command)
            except RedisError as error:
                self._undecided(error)
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 2)
                continue
            if reply == -1 and await self._won_again(claim):
                # Redis lost the entry and nobody else has it: recorded anew, so that the effect is, too.
                continue
            if reply < 1:
                self._meters.fenced()
                raise LeaseLost(f"the message in {claim.space} has another holder by now: nothing is sent for it")
            self.check(claim)
            return

    async def _won_again(self, claim: Claim) -> bool:
        try:
            return bool(await self._redis.run(*self._attempt(claim)) == 1)
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
        if not self._epoch.allows(claim.token):
            self._meters.fenced()
            return
        self._unsettled[claim.token] = (claim, outcome if reason is Reason.OK else f"{outcome}:{reason}")
        self._send_later(claim.token)

    def _send_later(self, token: bytes) -> None:
        """Ends of one turn go in one call: they are half of all commands, and nobody waits for them."""
        if not self._ending:
            self._loop.call_soon(self._send_ends)
        self._ending.append(token)

    def _send_ends(self) -> None:
        rows: dict[int, list[bytes]] = {}
        for token in self._ending:
            known = self._unsettled.get(token)
            if known is not None:
                rows.setdefault(known[0].bucket.number if self._redis.one_slot else 0, []).append(token)
        self._ending.clear()
        for tokens in rows.values():
            for start in range(0, len(tokens), _ENDS_PER_CALL):
                self._send_call(tokens[start : start + _ENDS_PER_CALL])

    def _send_call(self, tokens: list[bytes], *, again: bool = False) -> None:
        keys: list[bytes | str | int] = []
        arguments: list[bytes | str | int] = []
        for token in tokens:
            claim, outcome = self._unsettled[token]
            keys += (claim.home, claim.bucket.open, claim.bucket.books)
            arguments += (claim.field, token, "d", outcome)
        command = self._mark.rows(keys, arguments)
        if again:
            # The server may have lost the script; with its source the call needs no second round.
            command = self._mark.with_source(command)
        self._settling.update(tokens)
        self._redis.submit(*command).add_done_callback(partial(self._answered, tokens))

    def _answered(self, tokens: list[bytes], future: asyncio.Future[Any]) -> None:
        self._settling.difference_update(tokens)
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            if isinstance(error, ReplyError) and error.code in _FINAL and len(tokens) == 1:
                _log.error("claim.end_refused", error=str(error))
                self._unsettled.pop(tokens[0], None)
            return
        for token, answer in zip(tokens, future.result(), strict=True):
            if answer == 0:
                self._meters.fenced()
            elif answer == -1:
                self._meters.forgotten()
            elif answer == -2:
                _log.error("claim.end_refused", error="a foreign value stands in the entry's place")
            self._unsettled.pop(token, None)

    async def _settle(self) -> None:
        for token in list(self._unsettled):
            if token in self._settling:
                continue
            if not self._epoch.allows(token):
                del self._unsettled[token]
                self._meters.fenced()
            else:
                # Each on its own: one that is refused must not hold back the others.
                self._send_call([token], again=True)

    async def settled(self, within_s: float) -> bool:
        """Wait until Redis has confirmed every end; False if it did not within the time."""
        limit = asyncio.get_running_loop().time() + within_s
        while self._unsettled and asyncio.get_running_loop().time() < limit:  # noqa: ASYNC110  (once, on the way out)
            await asyncio.sleep(0.02)
        return not self._unsettled
