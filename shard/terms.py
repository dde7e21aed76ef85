"""What the ends of the whole fleet ask of matching: whether contents are kept, and how far clocks may differ.

An end without sequences can be matched only with messages whose contents are kept. So a worker announces each account
that reports none, or has not shown yet that it does: contents are kept for every group from then on, not only from the
group's first report without a sequence. Nothing here decides a message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import inf

import structlog

from pallas.clock import Clock
from pallas.errors import RedisError
from pallas.keys import ANY_SPACE, BUCKETS, TERMS_TTL_S, Keys
from pallas.onebot.ends import sequenced
from pallas.redis import Redis, script
from shard.conduct import Conduct
from shard.roster import Account, Roster

_log = structlog.get_logger()
PERIOD_S = 5.0
_SETTLE_S = 0.3
"""A new account may tell its version, or report a sequence, in this time; then nothing need be announced."""
_UNPROVEN_S = 120
_OFF_S = 600
_RENEW_S = 60
_HEARD_S = PERIOD_S * 2 + 2
"""Until then every worker that reaches Redis has read what was announced."""
_DEAF_S = 60
"""A mark lasts so long once it is renewed: for workers that were stopped, or cut off, while it was announced."""


class Terms:
    """The terms as this worker knows them; the match table reads them for each report."""

    __slots__ = ("contents", "tolerance_s")

    def __init__(self) -> None:
        self.contents = False
        """Some account reports no sequences, or may not: contents are kept for every group."""
        self.tolerance_s = 0
        """Seconds by which clocks may differ where only contents tell: 1 while some account's clock is off."""


class _Known:
    """What this worker found out about one of its accounts."""

    __slots__ = ("plain_until", "since", "with_seq", "without_seq")

    def __init__(self) -> None:
        self.since = -inf
        """When its newest link came, in monotonic seconds."""
        self.with_seq = 0
        """Reports with a sequence before its newest link: the end behind a new link may be another one."""
        self.without_seq = 0
        self.plain_until = 0

    def look(self, account: Account, conduct: Conduct, now: int) -> tuple[int, int]:
        """Until when this account asks for contents, and for tolerance; Unix seconds, 0 for not at all."""
        if conduct.without_seq > self.without_seq:
            self.without_seq, self.plain_until = conduct.without_seq, now + TERMS_TTL_S
        contents = self.plain_until
        if contents <= now and conduct.with_seq == self.with_seq and not sequenced(account.end, account.version):
            contents = now + _UNPROVEN_S
        return contents, now + _OFF_S if conduct.is_off else 0


class TermsBook:
    """The accounts of the fleet that ask for something, in Redis: each until when, and for what."""

    def __init__(self, redis: Redis, keys: Keys, clock: Clock, roster: Roster) -> None:
        self._redis = redis
        self._keys = keys
        self._clock = clock
        self._roster = roster
        self.terms = Terms()
        self._known: dict[str, _Known] = {}
        self._marked_until = 0.0
        self._is_asked = False
        self._forgotten_until = 0.0
        self._connected = asyncio.Event()

    def connected(self, account: Account) -> None:
        """An account has a new link: what it asks for is announced in a moment, not with the next beat."""
        self._known.setdefault(account.bot_id, _Known()).with_seq = self._roster.conducts[account.bot_id].with_seq
        self._known[account.bot_id].since = self._clock.mono()
        self._connected.set()

    async def keep(self) -> None:
        """Announce and learn for ever."""
        while True:
            try:
                await self.beat()
            except RedisError as error:
                # Claims wait for Redis as well; the loop of beats says that it is away.
                _log.debug("terms.not_read", error=str(error))
            try:
                async with asyncio.timeout(PERIOD_S):
                    await self._connected.wait()
            except TimeoutError:
                continue
            self._connected.clear()
            await asyncio.sleep(_SETTLE_S)

    async def beat(self) -> None:
        """Announce what this worker's accounts ask for, and learn what the others' do. Raises RedisError."""
        now = int(self._clock.wall_s())
        stored = _read(await self._redis.execute("HGETALL", self._keys.terms))
        own = self._own(now)
        asking = {bot_id for bot_id, (contents, _) in own.items() if contents > now}
        if asking - stored.keys():
            # New, or Redis has forgotten it, and its marks as well.
            self._marked_until = 0.0
        if self._is_asked and not stored:
            self._forgotten_until = self._clock.mono() + _HEARD_S
        if asking:
            await self._mark()
        else:
            self._marked_until = 0.0
        fields: list[str] = []
        for bot_id, (contents, tolerance) in own.items():
            had = stored.get(bot_id, (0, 0))
            if contents < had[0] <= now + _UNPROVEN_S:
                wanted = contents, tolerance
            else:
                # What an earlier worker of this account knew stays true until it runs out.
                wanted = max(contents, had[0]), max(tolerance, had[1])
            if any(new > old + _RENEW_S or new < old for new, old in zip(wanted, had, strict=True)):
                stored[bot_id] = wanted
                fields += (bot_id, f"{wanted[0]} {wanted[1]}")
        if fields:
            # In one write: an answer that comes late must not keep the second from being sent.
            await asyncio.gather(
                self._redis.submit("HSET", self._keys.terms, *fields),
                self._redis.submit("EXPIRE", self._keys.terms, TERMS_TTL_S),
            )
        over = [bot_id for bot_id, until in stored.items() if max(until) <= now and bot_id not in own]
        if over:
            await self._redis.execute("HDEL", self._keys.terms, *over)
        # Where Redis has forgotten who asked, those who did are given time to ask again.
        self._is_asked = any(contents > now for contents, _ in stored.values())
        self.terms.contents = self._is_asked or self._clock.mono() < self._forgotten_until
        self.terms.tolerance_s = int(any(tolerance > now for _, tolerance in stored.values()))

    def _own(self, now: int) -> dict[str, tuple[int, int]]:
        own = {}
        known: dict[str, _Known] = {}
        for account in self._roster:
            one = known[account.bot_id] = self._known.get(account.bot_id) or _Known()
            if self._clock.mono() - one.since < _SETTLE_S / 2:
                # It came while this beat began; the next one, which its coming has called for, looks at it.
                continue
            own[account.bot_id] = one.look(account, self._roster.conducts[account.bot_id], now)
        self._known = known
        return own

    async def _mark(self) -> None:
        """Mark all spaces of every bucket, so that scripts know what the worker that calls them has not read yet.

        Nobody takes the marks back: they lapse, also where the worker that set them is killed.
        """
        mono = self._clock.mono()
        if mono < self._marked_until - _HEARD_S:
            return
        # Most ends show a sequence at once: then the others are to compare contents no longer than they must.
        life_s = _DEAF_S if self._marked_until else int(_HEARD_S)
        mark = script("plain_mark")
        names = (self._keys.bucket_keys(number).plain for number in range(BUCKETS))
        commands = [mark.named(plain=name, space=ANY_SPACE, life_s=life_s) for name in names]
        told = await asyncio.gather(*(self._redis.run(mark, command) for command in commands), return_exceptions=True)
        failed = next((one for one in told if isinstance(one, BaseException)), None)
        if failed is None:
            self._marked_until = mono + life_s
        elif isinstance(failed, RedisError):
            # The next beat tries again; what can be announced without is announced.
            _log.debug("terms.not_marked", error=str(failed))
        else:
            raise failed


def _read(flat: Iterable[bytes]) -> dict[str, tuple[int, int]]:
    """Account → until when it asks for contents, and for tolerance; what is no such record is left out."""
    found = {}
    values = iter(flat)
    for name, value in zip(values, values, strict=True):
        try:
            contents, tolerance = map(int, value.split())
            found[name.decode()] = contents, tolerance
        except (ValueError, UnicodeDecodeError):
            continue
    return found
