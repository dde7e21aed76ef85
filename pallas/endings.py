"""How messages ended, told to Redis until it has confirmed it.

Nobody waits for it: the ends of one loop turn go in one call, and what was not confirmed is told again. Under an epoch
that may have lapsed nothing is completed that another may hold; an entry whose effect was recorded is the one
exception, for from then on only its own token can say how it went.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import structlog

from pallas.claim import Claim, Epoch, epoch_of, nobody_of
from pallas.errors import ReplyError
from pallas.faults import Faults, Point
from pallas.keys import DEAD_TTL_S, Bucket
from pallas.metrics import Meters
from pallas.model import Outcome, Reason
from pallas.redis import Command, Redis, Script, script
from pallas.tasks import Tasks, every

_log = structlog.get_logger()
_PER_CALL = 32
_AGAIN_S = 0.5
_LISTED_PER_BUCKET = 1000
"""So many dead entries of one bucket are listed; all are counted."""
_FINAL = frozenset({"ERR", "NOPERM", "WRONGTYPE"})
"""Refusals that the same command meets again; all others pass with the server's state (OOM, READONLY, MISCONF …)."""
_LATE = 3
_REMEMBERED = 4096
"""So many confirmed ends are remembered at least: what a server acknowledged, its successor may not know."""


class _Ending(NamedTuple):
    """One claim's end; `call` is set where it goes in a call of its own."""

    claim: Claim
    outcome: str = ""
    call: tuple[Script, Command] | None = None


class Endings:
    """The ends of one worker's claims that Redis has not confirmed yet."""

    def __init__(self, redis: Redis, epoch: Epoch, tasks: Tasks, meters: Meters, faults: Faults | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._redis = redis
        self._epoch = epoch
        self._meters = meters
        self._faults = faults
        self._mark = script("entry_mark")
        self._release = script("entry_release")
        self._abandon = script("entry_abandon")
        self._late = script("entry_late")
        self._open: dict[bytes, _Ending] = {}
        self._asked: set[bytes] = set()
        self._queued: list[bytes] = []
        self._told: dict[bytes, _Ending] = {}
        self._told_before: dict[bytes, _Ending] = {}
        tasks.start(every(_AGAIN_S, self._tell_again, name="endings.again"), "endings.again")

    def __len__(self) -> int:
        return len(self._open)

    def end(self, claim: Claim, outcome: Outcome, reason: Reason) -> None:
        """The claim's message ended so."""
        if self._faults is not None:
            self._faults.hit(Point.ENDING)
        if self._may_tell(claim):
            self._open[claim.token] = _Ending(claim, outcome if reason is Reason.OK else f"{outcome}:{reason}")
            self._later(claim.token)

    def unknown(self, claim: Claim, *, at: float, **about: object) -> None:
        """What was sent for the claim's message may or may not have arrived."""
        if self._may_tell(claim):
            about |= {"said_at": claim.time_s, "cause": "no_answer"}
            call = abandoning(claim.bucket, claim.space, claim.home, claim.field, claim.token, at=at, **about)
            self._alone(claim, *call)

    def release(self, claim: Claim) -> None:
        """The claim's message, for which surely nothing was done, goes back to be taken by anybody who saw it."""
        command = self._release.command(claim.home, claim.bucket.open, claim.field, claim.token, nobody_of(claim.token))
        # Also under an epoch that lapsed: it gives up what it held, and takes nothing.
        self._alone(claim, self._release, command)

    def _may_tell(self, claim: Claim) -> bool:
        if self._epoch.allows(claim.token):
            return True
        self._meters.fenced()
        return claim.begun

    def _alone(self, claim: Claim, call: Script, command: Command) -> None:
        self._open[claim.token] = _Ending(claim, call=(call, command))
        self._send([claim.token], command, self._answered_alone)

    def _later(self, token: bytes) -> None:
        # Ends are half of all commands: those of one turn share a call.
        if not self._queued:
            self._loop.call_soon(self._send_queued)
        self._queued.append(token)

    def _send_queued(self) -> None:
        rows: dict[int, list[bytes]] = {}
        for token in self._queued:
            known = self._open.get(token)
            if known is not None:
                rows.setdefault(known.claim.bucket.number if self._redis.one_slot else 0, []).append(token)
        self._queued.clear()
        for tokens in rows.values():
            for start in range(0, len(tokens), _PER_CALL):
                self._send_rows(tokens[start : start + _PER_CALL])

    def _send_rows(self, tokens: list[bytes], *, again: bool = False) -> None:
        keys: list[bytes | str | int] = []
        arguments: list[bytes | str | int] = []
        for token in tokens:
            claim, outcome, _ = self._open[token]
            keys += (claim.home, claim.bucket.open, claim.bucket.books)
            arguments += (claim.field, token, "d", outcome)
        command = self._mark.rows(keys, arguments)
        # The server may have lost the script; with its source the call needs no second round.
        command = self._mark.with_source(command) if again else command
        self._send(tokens, command, self._answered, again=again)

    def _send(
        self,
        tokens: list[bytes],
        command: Command,
        answered: Callable[[list[bytes], asyncio.Future[Any]], None],
        *,
        again: bool = False,
    ) -> None:
        self._asked.update(tokens)
        redis = self._redis.patient if again else self._redis
        redis.submit(*command).add_done_callback(partial(answered, tokens))

    def _answered(self, tokens: list[bytes], future: asyncio.Future[Any]) -> None:
        if self._is_unanswered(tokens, future):
            return
        for token, answer in zip(tokens, future.result(), strict=True):
            if self._faults is not None:
                self._faults.hit(Point.ENDED)
            ending = self._confirmed(token)
            if answer == _LATE and ending is not None:
                claim, outcome, _ = ending
                bucket = claim.bucket
                late = self._late.command(claim.home, bucket.books, bucket.dead, claim.field, token, outcome)
                self._alone(claim, self._late, late)
            elif answer == 0:
                self._meters.fenced()
            elif answer == -1:
                self._meters.forgotten()
            elif answer == -2:
                self._told.pop(token, None)
                _log.error("claim.end_refused", error="a foreign value stands in the entry's place")

    def _answered_alone(self, tokens: list[bytes], future: asyncio.Future[Any]) -> None:
        if not self._is_unanswered(tokens, future):
            self._confirmed(tokens[0])
            if future.result() == 0:
                self._meters.fenced()

    def _confirmed(self, token: bytes) -> _Ending | None:
        ending = self._open.pop(token, None)
        # What was given back is not told again: another may have answered it since, and Redis forgotten that as well.
        if ending is not None and (ending.call is None or ending.call[0] is self._abandon):
            if len(self._told) >= _REMEMBERED:
                self._told_before, self._told = self._told, {}
            self._told[token] = ending
        return ending

    def has_told(self, token: bytes) -> bool:
        """Whether Redis has confirmed how the token's message ended, as far as that is remembered."""
        return token in self._told or token in self._told_before

    def tell_forgotten(self, token: bytes) -> bool:
        """Tell an end again that Redis had confirmed; whether it is on its way now.

        Replication and the append-only file lag behind what was acknowledged: after a fail-over or a crash the entry of
        an ended message may be open again.
        """
        ending = self._told.pop(token, None) or self._told_before.pop(token, None)
        if ending is not None:
            self._meters.forgotten()
            self._open[token] = ending
            # It was confirmed: its epoch need not live any more, and the script compares the token.
            if ending.call is None:
                self._send_rows([token], again=True)
            else:
                call, command = ending.call
                self._send([token], call.with_source(command), self._answered_alone, again=True)
        return token in self._open

    def _is_unanswered(self, tokens: list[bytes], future: asyncio.Future[Any]) -> bool:
        self._asked.difference_update(tokens)
        error = None if future.cancelled() else future.exception()
        if isinstance(error, ReplyError):
            if error.code == "NOSCRIPT":
                self._tell_each(tokens)
            elif error.code in _FINAL and len(tokens) == 1:
                _log.error("claim.end_refused", error=str(error))
                self._open.pop(tokens[0], None)
        return future.cancelled() or error is not None

    async def _tell_again(self) -> None:
        on_their_way = self._asked.union(self._queued)
        self._tell_each([token for token in self._open if token not in on_their_way])

    def _tell_each(self, tokens: list[bytes]) -> None:
        """Tell ends again, each on its own: one that is refused must not hold back the others."""
        for token in tokens:
            ending = self._open.get(token)
            if ending is None:
                continue
            if ending.call is not None:
                call, command = ending.call
                self._send([token], call.with_source(command), self._answered_alone, again=True)
            elif self._epoch.allows(token) or ending.claim.begun:
                self._send_rows([token], again=True)
            else:
                del self._open[token]
                self._meters.fenced()

    async def confirmed(self, within_s: float) -> bool:
        """Wait until Redis has confirmed every end; False if it did not within the time."""
        limit = self._loop.time() + within_s
        while self._open and self._loop.time() < limit:  # noqa: ASYNC110  (once, on the way out)
            await asyncio.sleep(0.02)
        return not self._open


def abandoning(
    bucket: Bucket,
    space: str,
    home: str,
    field: bytes | int,
    token: bytes,
    *,
    at: float,
    **about: object,
) -> tuple[Script, Command]:
    """The call that ends an entry whose holder cannot say how it went; what is known of it is kept in a list.

    `about` holds `cause`, `said_at` (Unix seconds) and, where they are known, `bot_id` and `handler`.
    """
    note = {
        "at": round(at, 3),
        "space": space,
        "shard_id": str(int.from_bytes(token[:2], "big")),
        "epoch": epoch_of(token),
        **about,
    }
    abandon = script("entry_abandon")
    text = json.dumps(note, ensure_ascii=False, separators=(",", ":"))
    return abandon, abandon.command(
        home, bucket.open, bucket.books, bucket.dead, field, token, text, _LISTED_PER_BUCKET, DEAD_TTL_S
    )
