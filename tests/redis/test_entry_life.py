"""One entry's life, whatever order its workers act in: one holder, each end counted once, the books always balance.

Also where the records of others push it out of its home meanwhile: then it lives on in `open` alone.
"""

from __future__ import annotations

import asyncio
import json
import struct
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pallas.claim import Claim, epoch_of, place_in, space_of
from pallas.endings import abandoning
from pallas.keys import Keys, encode
from pallas.redis import Redis, script
from tests.support.opened import opened

KEYS = Keys("life")
BUCKET = KEYS.bucket(encode("1"))
TIME, SENDER = struct.pack(">I", 1_800_000_003), struct.pack(">L", 7)
KEPT = 3
"""So many records of one place are remembered."""
TOKENS = [struct.pack(">HLL", shard, 100 + shard, 9) for shard in range(3)]


def nobody(token: bytes) -> bytes:
    """What a holder puts in the place of its token where it gives an entry back."""
    return token[:2] + bytes(4) + token[6:]


def others_token(number: int) -> bytes:
    """The token of another message in the same place."""
    return struct.pack(">HLL", 9, 900, number)


@dataclass(slots=True)
class Model:
    """What may become of one entry."""

    state: str = ""
    holder: bytes = b""
    books: dict[str, int] = field(default_factory=dict)
    listed: bool = False
    others: int = 0
    behind: int = 0
    """Records that came into its home after its own."""

    @property
    def is_open(self) -> bool:
        return self.state in {"c", "e"}

    @property
    def is_out(self) -> bool:
        return self.behind >= KEPT

    def push(self) -> int:
        self.others += 1
        self.behind += bool(self.state)
        self.count("distinct")
        return 1

    def count(self, name: str, by: int = 1) -> None:
        self.books[name] = self.books.get(name, 0) + by

    def claim(self, token: bytes) -> Any:
        if not self.state:
            self.state, self.holder = "c", token
            self.count("distinct")
        return 1 if token == self.holder else b"q" + self.state.encode() + self.holder

    def mark(self, token: bytes, state: str) -> int:
        if not self.state:
            return 0 if self.others else -1
        if token != self.holder or (self.is_out and not self.is_open):
            return 0
        if self.state == state and not self.is_out:
            return 2
        if self.state in "du":
            return 3 if (self.state, state) == ("u", "d") else 0
        self.state = state
        if state == "d":
            self.count("handled")
            return 1
        return 1

    def take(self, old: bytes, new: bytes) -> int:
        if self.holder and self.holder == new and (self.is_open or not self.is_out):
            return 1
        if self.state != "c" or self.holder != old:
            return 0
        self.holder = new
        return 1

    def release(self, token: bytes) -> int:
        if self.holder == nobody(token) and (self.is_open or not self.is_out):
            return 1
        if not self.is_open or self.holder != token:
            return 0
        self.state, self.holder = "c", nobody(token)
        return 1

    def abandon(self, token: bytes) -> Any:
        if token != self.holder or not self.is_open:
            return 0
        was, self.state, self.listed = self.state, "u" if self.state == "e" else "d", True
        self.count("dead:sent_unknown" if was == "e" else "dead:holder_lost")
        return was.encode()

    def late(self, token: bytes) -> int:
        if token != self.holder or self.state not in {"d", "u"} or self.is_out:
            return 0
        if self.state == "d":
            return 2
        self.state, self.listed = "d", False
        self.count("dead:sent_unknown", -1)
        self.count("handled")
        return 1


class Entry:
    """The same through the scripts."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.home, self.at = BUCKET.block(5), 5
        self.others = 0

    async def _run(self, name: str, *values: Any) -> Any:
        made = script(name)
        return await self.redis.run(made, made.command(*values))

    async def push(self) -> Any:
        self.others += 1
        return await self.claim(others_token(self.others), struct.pack(">L", 1000 + self.others))

    async def claim(self, token: bytes, sender: bytes = SENDER) -> Any:
        record = b"c" + token + TIME + sender
        keys = (self.home, BUCKET.open, BUCKET.books, BUCKET.plain)
        return await self._run("entry_claim", *keys, token, self.at, record, 86_400, "1", 5)

    async def mark(self, token: bytes, state: str) -> Any:
        outcome = "handled" if state == "d" else ""
        keys = (self.home, BUCKET.open, BUCKET.books)
        return (await self._run("entry_mark", *keys, self.at, token, state, outcome))[0]

    async def take(self, old: bytes, new: bytes) -> Any:
        return await self._run("entry_take", self.home, BUCKET.open, self.at, old, new)

    async def release(self, token: bytes) -> Any:
        return await self._run("entry_release", self.home, BUCKET.open, self.at, token, nobody(token))

    async def abandon(self, token: bytes) -> Any:
        call, command = abandoning(BUCKET, "1", self.home, self.at, token, at=1.0, cause="holder_died")
        return await self.redis.run(call, command)

    async def late(self, token: bytes) -> Any:
        return await self._run("entry_late", self.home, BUCKET.books, BUCKET.dead, self.at, token, "handled")

    async def seen(self) -> tuple[dict[str, int], dict[bytes, bytes], list[bytes]]:
        flat, _, tokens, _ = await self._run("books_read", BUCKET.books, BUCKET.open, 100, b"", b"")
        dead = await self.redis.execute("HGETALL", BUCKET.dead)
        counts = {name.decode(): int(count) for name, count in zip(flat[::2], flat[1::2], strict=True)}
        return counts, dict(zip(dead[::2], dead[1::2], strict=True)), tokens


tokens = st.sampled_from(TOKENS[:2])
steps = st.one_of(
    st.tuples(st.just("claim"), tokens),
    st.tuples(st.just("mark"), tokens, st.sampled_from("ed")),
    st.tuples(st.just("take"), st.sampled_from([*TOKENS[:2], *map(nobody, TOKENS[:2])]), tokens),
    st.tuples(st.just("release"), tokens),
    st.tuples(st.just("abandon"), st.sampled_from([*TOKENS[:2], *map(nobody, TOKENS[:2])])),
    st.tuples(st.just("late"), tokens),
    st.tuples(st.just("push")),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(way=st.lists(steps, max_size=14))
def test_every_order_of_steps_leaves_one_holder_and_balanced_books(redis_url: str, way: list[tuple[Any, ...]]) -> None:
    asyncio.run(lived(redis_url, way))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.lists(steps, max_size=4), after=st.lists(steps, min_size=6, max_size=12))
def test_an_entry_that_was_pushed_out_has_one_holder_and_one_end_too(
    redis_url: str, before: list[tuple[Any, ...]], after: list[tuple[Any, ...]]
) -> None:
    way = [("claim", TOKENS[0]), *before, *[("push",)] * KEPT, *after]
    asyncio.run(lived(redis_url, way))


async def lived(url: str, way: list[tuple[Any, ...]]) -> None:
    async with opened(url) as redis:
        await redis.execute("FLUSHALL")
        entry, model = Entry(redis), Model()
        for name, *values in way:
            # What is told again of a message that its home has forgotten is a message of its own.
            if name == "claim" and model.is_out:
                continue
            assert await getattr(entry, name)(*values) == getattr(model, name)(*values), (name, values, way)
        await agrees(entry, model)
        if model.is_open:
            assert await entry.abandon(model.holder) == model.abandon(model.holder)
        for number in range(1, model.others + 1):
            assert await entry.mark(others_token(number), "d") == 1
        model.count("handled", model.others)
        model.others = 0
        await agrees(entry, model)


async def agrees(entry: Entry, model: Model) -> None:
    """The server's books, open entries and list of the dead are the model's, and the books balance."""
    books, dead, open_tokens = await entry.seen()
    assert {name: count for name, count in books.items() if count} == {k: v for k, v in model.books.items() if v}
    ended = sum(count for name, count in books.items() if name != "distinct")
    assert books.get("distinct", 0) == ended + len(open_tokens)
    others = {others_token(number) for number in range(1, model.others + 1)}
    assert set(open_tokens) == others | ({model.holder} if model.is_open else set())
    assert list(dead) == ([model.holder] if model.listed else [])


@pytest.fixture
async def entry(redis_url: str) -> Any:
    async with opened(redis_url) as redis:
        yield Entry(redis)


async def test_the_list_of_the_dead_says_which_worker_held_it_and_never_what_was_said(entry: Entry) -> None:
    assert await entry.claim(TOKENS[1]) == 1
    assert await entry.mark(TOKENS[1], "e") == 1
    assert await entry.abandon(TOKENS[1]) == b"e"
    _, dead, _ = await entry.seen()
    assert dead[TOKENS[1]][:1] == b"e"
    note = json.loads(dead[TOKENS[1]][1:])
    assert note == {"at": 1.0, "space": "1", "shard_id": "1", "epoch": 101, "cause": "holder_died"}


async def test_what_is_listed_is_bounded_and_still_counted(entry: Entry) -> None:
    made = script("entry_abandon")
    keys = (entry.home, BUCKET.open, BUCKET.books, BUCKET.dead)
    for number, token in enumerate(TOKENS):
        record = b"c" + token + TIME + struct.pack(">L", number)
        claim = script("entry_claim")
        where = (entry.home, BUCKET.open, BUCKET.books, BUCKET.plain)
        await entry.redis.run(claim, claim.command(*where, token, 5, record, 86_400, "1", 5))
        assert await entry.redis.run(made, made.command(*keys, 5, token, "{}", 2, 60)) == b"c"
    books, dead, _ = await entry.seen()
    assert (books["dead:holder_lost"], len(dead)) == (3, 2)


@pytest.mark.parametrize("seq", [1029, None], ids=["by sequence", "by content"])
async def test_what_open_keeps_of_an_entry_leads_to_its_record(redis_url: str, seq: int | None) -> None:
    async with opened(redis_url) as redis:
        claim = Claim(BUCKET, "1", seq, 1_800_000_003, "7", "10001:1")
        claim.token = TOKENS[0]
        claim.body = b"\x00|body|\xff" if seq is None else None
        home, at = (BUCKET.block(1029), 1029 & 63) if seq is not None else claim.content_at(claim.time_s)
        if seq is not None:
            made = script("entry_claim")
            names = (home, BUCKET.open, BUCKET.books, BUCKET.plain)
            await redis.run(made, made.command(*names, claim.token, at, claim.record(), 86_400, "1", seq))
        else:
            made = script("entry_match")
            hashes = (BUCKET.block(0), home, home, BUCKET.open, BUCKET.books, BUCKET.plain)
            values = (claim.token, "", claim.record(), 86_400, "1", "", at, 3, b"", 0, 0, claim.observer())
            await redis.run(made, made.command(*hashes, *values))
        place = await redis.execute("HGET", BUCKET.open, claim.token)
        assert place[:1] == b"c"
        assert space_of(place[1:]) == "1"
        assert place_in(BUCKET, place[1:]) == (home, at)
        claim.home, claim.field = home, at
        assert claim.holder_in(await redis.execute("HGET", home, at)) == b"c" + claim.token
        assert epoch_of(claim.token) == epoch_of(b"c" + claim.token) == 100
