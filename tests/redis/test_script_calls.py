"""Each script called by itself: its table of cases, the repeated call, the wrong owner, one slot, a lost script cache.

What scripts do together is tested where they are used; here stands what the server alone decides.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any

import pytest

from pallas.keys import Keys
from pallas.redis import Redis, script
from pallas.redis.cluster import key_slot, slot_of
from tests.support.opened import opened
from tests.support.waiting import wait_until

KEYS = Keys("test")
BUCKET = KEYS.bucket("1")
TOKEN, OTHER = struct.pack(">HLL", 0, 100, 1), struct.pack(">HLL", 1, 100, 1)
CONTENT = b"\x00digest\xff\x05"
SENDER, TIME = b"\x01\x02\x03\x04", struct.pack(">L", 1_800_000_000)
SHARED: dict[str, Any] = {"open": BUCKET.open, "books": BUCKET.books, "plain": BUCKET.plain}
CALLS: dict[str, dict[str, Any]] = {
    "books_read": {"books": BUCKET.books, "open": BUCKET.open, "limit": 10, "living": b"", "own": b""},
    "entry_claim": {
        **SHARED,
        "block": BUCKET.block(5),
        "token": TOKEN,
        "field": 5,
        "record": b"c" + TOKEN + TIME + SENDER,
        "ttl": 86_400,
        "space": "1",
        "seq": 5,
    },
    "entry_match": {
        **SHARED,
        "block": BUCKET.block(0),
        "hour": BUCKET.hour(0),
        "aside": BUCKET.hour(3600),
        "token": TOKEN,
        "field": "",
        "record": b"c" + TOKEN + TIME + SENDER,
        "ttl": 86_400,
        "space": "1",
        "seq": "",
        "content": CONTENT,
        "second": 3,
        "beside": "",
        "shift": 0,
        "tolerance": 0,
        "observer": b"\x00\x00\x00\x01mark",
    },
    "entry_mark": {
        "home": BUCKET.block(5),
        "open": BUCKET.open,
        "books": BUCKET.books,
        "field": 5,
        "token": TOKEN,
        "state": "d",
        "outcome": "handled",
    },
    "entry_abandon": {
        "home": BUCKET.block(5),
        "open": BUCKET.open,
        "books": BUCKET.books,
        "dead": BUCKET.dead,
        "field": 5,
        "token": TOKEN,
        "note": "{}",
        "limit": 10,
        "keep_s": 60,
    },
    "entry_late": {
        "home": BUCKET.block(5),
        "books": BUCKET.books,
        "dead": BUCKET.dead,
        "field": 5,
        "token": TOKEN,
        "outcome": "handled",
    },
    "entry_release": {
        "home": BUCKET.block(5),
        "open": BUCKET.open,
        "field": 5,
        "token": TOKEN,
        "nobody": TOKEN[:2] + bytes(4) + TOKEN[6:],
    },
    "plain_mark": {"plain": BUCKET.plain, "space": "*", "life_s": 12},
    "leases_read": {"leases": KEYS.leases, "epoch": KEYS.epoch},
    "entry_take": {"home": BUCKET.block(5), "open": BUCKET.open, "field": 5, "old": OTHER, "new": TOKEN},
    "lease_take": {
        "leases": KEYS.leases,
        "epoch": KEYS.epoch,
        "shard": 3,
        "life_ms": 60_000,
        "keep_ms": 86_400_000,
        "attempt": "a1",
        "after": 0,
        "info": "{}",
    },
    "lease_renew": {
        "leases": KEYS.leases,
        "given": KEYS.epoch,
        "shard": 3,
        "epoch": 1,
        "life_ms": 60_000,
        "keep_ms": 86_400_000,
        "info": "{}",
    },
    "lease_release": {"leases": KEYS.leases, "shard": 3, "epoch": 1},
    "fleet_forget": {"fleet": KEYS.fleet, "account": "1", "value": "{}"},
    "presence_put": {
        "presence": KEYS.presence,
        "account": "1",
        "epoch": 7,
        "connected_ms": 1000,
        "purge_ms": 120_000,
        "keep_s": 86_400,
        "record": "{}",
    },
    "presence_drop": {"presence": KEYS.presence, "account": "1", "epoch": 7, "purge_ms": 120_000},
    "ready_write": {"ready": KEYS.ready("x"), "life_s": 60},
}


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with opened(redis_url) as opening:
        yield opening


async def call(client: Redis, name: str, **changed: Any) -> Any:
    made = script(name)
    return await client.run(made, made.named(**{**CALLS[name], **changed}))


async def mark(client: Redis, **changed: Any) -> int:
    """`entry_mark` for one entry alone."""
    (answer,) = await call(client, "entry_mark", **changed)
    return int(answer)


def test_every_script_is_called_here() -> None:
    names = {path.name.removesuffix(".lua") for path in (files("pallas.redis") / "lua").iterdir()}
    assert names == CALLS.keys()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_keys_of_one_call_share_a_slot(name: str) -> None:
    made = script(name)
    command = made.named(**CALLS[name])
    assert {key_slot(str(key).encode()) for key in command[3 : 3 + len(made.keys)]} == {slot_of(command)}


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_a_call_survives_a_lost_script_cache(client: Redis, name: str) -> None:
    await client.execute("SCRIPT", "FLUSH")
    first = await call(client, name)
    await client.execute("SCRIPT", "FLUSH")
    again = await call(client, name)
    assert type(again) is type(first)


async def test_a_claim_tells_who_holds_the_entry(client: Redis) -> None:
    assert await call(client, "entry_claim") == 1
    assert await call(client, "entry_claim") == 1, "own token: won earlier"
    other = b"c" + OTHER + TIME + SENDER
    assert await call(client, "entry_claim", token=OTHER, record=other) == b"qc" + TOKEN
    await mark(client, state="e", outcome="")
    assert await call(client, "entry_claim", token=OTHER, record=other) == b"qe" + TOKEN
    await mark(client)
    assert await call(client, "entry_claim", token=OTHER, record=other) == b"qd" + TOKEN
    assert await call(client, "entry_claim") == 1


async def test_a_claim_in_a_plain_group_writes_nothing(client: Redis) -> None:
    for space in ("1", "*"):
        await plain_until(client, 60, space)
        assert await call(client, "entry_claim") == -1
        assert await client.execute("EXISTS", BUCKET.block(5), BUCKET.open, BUCKET.books) == 0
        await client.execute("DEL", BUCKET.plain)


async def test_a_mark_that_lapsed_or_is_of_another_space_is_none(client: Redis) -> None:
    await plain_until(client, -1, "1", "*")
    await plain_until(client, 60, "2")
    assert await call(client, "entry_claim") == 1


async def test_a_report_without_a_sequence_marks_its_space_for_as_long_as_claims_live(client: Redis) -> None:
    now = await server_s(client)
    said = b"c" + TOKEN + struct.pack(">L", now) + SENDER
    assert await call(client, "entry_match", record=said) == 1
    assert now + 86_400 <= await marked_until(client, "1") <= now + 86_402
    assert 86_390 < await client.execute("TTL", BUCKET.plain) <= 86_400
    # Renewed once a twentieth of its life is over, and not with each report.
    for age_s, renewed in ((4300, False), (4400, True)):
        await plain_until(client, 86_400 - age_s, "1")
        before = await marked_until(client, "1")
        await call(client, "entry_match", record=said)
        assert (await marked_until(client, "1") > before) == renewed


@pytest.mark.parametrize("days", [-30, 30], ids=["behind", "ahead"])
async def test_a_mark_lasts_by_the_servers_clock_whatever_that_of_the_end_says(client: Redis, days: int) -> None:
    now = await server_s(client)
    said = b"c" + TOKEN + struct.pack(">L", now + days * 86_400) + SENDER
    assert await call(client, "entry_match", record=said) == 1
    assert now + 86_400 <= await marked_until(client, "1") <= now + 86_402


async def test_a_report_with_a_sequence_marks_nothing(client: Redis) -> None:
    assert await call(client, "entry_match", field=5, seq=5) == 1
    assert await client.execute("EXISTS", BUCKET.plain) == 0


@pytest.mark.parametrize("space", ["@10001,7", "!1"], ids=["a private chat", "notices"])
async def test_what_never_has_a_sequence_marks_nothing(client: Redis, space: str) -> None:
    assert await call(client, "entry_match", space=space) == 1
    assert await client.execute("EXISTS", BUCKET.plain) == 0


@pytest.mark.parametrize("name", ["entry_match", "plain_mark"])
async def test_marks_that_lapsed_go_with_new_ones_a_few_at_a_time(client: Redis, name: str) -> None:
    await plain_until(client, -5, *(f"old-{number}" for number in range(20)))
    await plain_until(client, 60, "other")
    for left in (12, 4, 0):
        await client.execute("ZREM", BUCKET.plain, "1", "*")
        await call(client, name)
        assert await client.execute("ZCARD", BUCKET.plain) == left + 2, "the other's mark, and the new one"


async def plain_until(client: Redis, life_s: int, *spaces: str) -> None:
    until = await server_s(client) + life_s
    for space in spaces:
        await client.execute("ZADD", BUCKET.plain, until, space)
    await client.execute("EXPIRE", BUCKET.plain, 90_000)


async def marked_until(client: Redis, space: str) -> int:
    return int(await client.execute("ZSCORE", BUCKET.plain, space) or 0)


async def server_s(client: Redis) -> int:
    return int((await client.execute("TIME"))[0])


async def test_a_match_tells_who_holds_the_entry(client: Redis) -> None:
    assert await call(client, "entry_match") == 1
    assert await call(client, "entry_match") == 1, "own token: won earlier"
    theirs = {"token": OTHER, "record": b"c" + OTHER + TIME + SENDER, "observer": b"\x00\x00\x00\x02mark"}
    assert await call(client, "entry_match", **theirs) == b"tc" + TOKEN + b"h\0"
    sequenced = {**theirs, "observer": b"\x00\x00\x00\x03mark", "field": 5, "seq": 5}
    assert await call(client, "entry_match", **sequenced) == b"tc" + TOKEN + b"h\0"
    # The pointer that is left shows the next one the way.
    assert await call(client, "entry_match", **sequenced) == b"x" + CONTENT + TIME
    await client.execute("ZREM", BUCKET.plain, "1")
    await client.execute("HSET", BUCKET.block(5), 5, await client.execute("HGET", BUCKET.block(0), 5))
    await client.execute("EXPIRE", BUCKET.block(5), 60)
    assert await call(client, "entry_claim") == b"x" + CONTENT + TIME


async def test_a_match_with_a_sequenced_entry_tells_the_sequence(client: Redis) -> None:
    assert await call(client, "entry_match", field=5, seq=1029) == 1
    theirs = {"token": OTHER, "record": b"c" + OTHER + TIME + SENDER, "observer": b"\x00\x00\x00\x02mark"}
    assert await call(client, "entry_match", **theirs) == b"s" + (1029).to_bytes(2, "big") + b"\0"


@pytest.mark.parametrize(
    ("before", "state", "reply", "after"),
    [
        ("c", "e", 1, "e"),
        ("c", "d", 1, "d"),
        ("e", "e", 2, "e"),
        ("e", "d", 1, "d"),
        ("d", "d", 2, "d"),
        ("d", "e", 0, "d"),
    ],
)
async def test_an_entry_moves_on_and_never_back(client: Redis, before: str, state: str, reply: int, after: str) -> None:
    await call(client, "entry_claim")
    if before != "c":
        await mark(client, state=before, outcome="handled" if before == "d" else "")
    assert await mark(client, state=state, outcome="handled" if state == "d" else "") == reply
    assert (await client.execute("HGET", BUCKET.block(5), 5))[:1] == after.encode()


@pytest.mark.parametrize("state", ["e", "d"])
async def test_only_the_holder_moves_an_entry(client: Redis, state: str) -> None:
    await call(client, "entry_claim")
    before = await client.execute("HGET", BUCKET.block(5), 5)
    assert await mark(client, token=OTHER, state=state) == 0
    assert await client.execute("HGET", BUCKET.block(5), 5) == before
    assert await client.execute("HGETALL", BUCKET.books) == [b"distinct", b"1"]


@pytest.mark.parametrize("state", ["e", "d"])
async def test_what_is_not_remembered_is_not_made_up(client: Redis, state: str) -> None:
    assert await mark(client, state=state) == -1
    assert await client.execute("DBSIZE") == 0


async def test_an_end_is_counted_once_also_for_an_entry_that_was_pushed_out(client: Redis) -> None:
    await call(client, "entry_claim")
    await client.execute("DEL", BUCKET.block(5))
    assert [await mark(client) for _ in range(2)] == [-1, -1]
    assert await client.execute("HGETALL", BUCKET.books) == [b"distinct", b"1", b"handled", b"1"]
    assert await client.execute("EXISTS", BUCKET.open) == 0


@pytest.mark.leaves_keys
async def test_several_entries_are_marked_in_one_call_each_for_itself(client: Redis) -> None:
    tokens = [struct.pack(">HLL", 0, 100, number) for number in range(4)]
    for seq, token in enumerate(tokens):
        record = b"c" + token + TIME + SENDER
        assert await call(client, "entry_claim", token=token, record=record, field=seq, seq=seq) == 1
    await client.execute("SET", BUCKET.block(64), "foreign")
    rows: list[tuple[str, int, bytes, str, str]] = [
        (BUCKET.block(0), 0, tokens[0], "d", "handled"),
        (BUCKET.block(0), 1, OTHER, "d", "handled"),
        (BUCKET.block(64), 0, tokens[2], "d", "handled"),
        (BUCKET.block(128), 0, OTHER, "d", "handled"),
        (BUCKET.block(0), 3, tokens[3], "e", ""),
    ]
    keys = [key for home, *_ in rows for key in (home, BUCKET.open, BUCKET.books)]
    arguments = [value for row in rows for value in row[1:]]
    command = script("entry_mark").rows(keys, arguments)
    assert await client.run(script("entry_mark"), command) == [1, 0, -2, -1, 1]
    assert await client.run(script("entry_mark"), command) == [2, 0, -2, -1, 2], "told again, nothing is counted twice"
    assert await client.execute("HGETALL", BUCKET.books) == [b"distinct", b"4", b"handled", b"1"]
    assert await client.execute("HLEN", BUCKET.open) == 3


async def test_a_mark_lives_as_long_as_whoever_set_it_last_needs_it(client: Redis) -> None:
    now = await server_s(client)
    assert await call(client, "plain_mark", life_s=5) == 1
    assert await call(client, "plain_mark", life_s=60) == 0
    assert await call(client, "plain_mark", life_s=12) == 0, "what others need is not cut short"
    assert now + 60 <= await marked_until(client, "*") <= now + 61
    assert 12 < await client.execute("TTL", BUCKET.plain) <= 60
    await client.execute("EXPIRE", BUCKET.plain, 86_400)
    assert await call(client, "plain_mark", life_s=12) == 0
    assert await client.execute("TTL", BUCKET.plain) > 60, "what others remember there is not cut short"


async def test_a_mark_lapses_by_itself_though_others_keep_its_key(client: Redis) -> None:
    await call(client, "plain_mark", life_s=1)
    await plain_until(client, 60, "other")
    assert await call(client, "entry_claim") == -1

    async def lapsed() -> bool:
        return bool(await call(client, "entry_claim") == 1)

    await wait_until(lapsed, 5.0, saying="nobody takes it back")


async def test_a_lease_is_taken_renewed_and_released_by_its_epoch_alone(client: Redis) -> None:
    taken, shard, epoch = await call(client, "lease_take")
    assert (taken, shard) == (1, b"3")
    refused = await call(client, "lease_take", attempt="a2")
    assert refused[:2] == [0, b"3"]
    assert refused[2].startswith(epoch + b"|")
    assert await call(client, "lease_take") == [1, b"3", epoch], "the same wish, told again"
    assert await call(client, "lease_renew", epoch=int(epoch) + 1) == 0
    assert await call(client, "lease_renew", epoch=epoch) == int(epoch)
    assert await call(client, "lease_release", epoch=int(epoch) + 1) == 0
    assert await call(client, "lease_release", epoch=epoch) == 1
    assert await call(client, "lease_release", epoch=epoch) == 0
    assert await call(client, "lease_renew", epoch=epoch) == 0


@pytest.mark.parametrize("after", [0, 4_000_000_000])
async def test_an_epoch_is_above_the_servers_clock_the_last_one_and_the_callers(client: Redis, after: int) -> None:
    seconds = int((await client.execute("TIME"))[0])
    _, _, first = await call(client, "lease_take", shard="", attempt="a1", after=after)
    _, _, second = await call(client, "lease_take", shard="", attempt="a2")
    assert int(first) >= max(seconds, after + 1)
    assert int(second) > int(first)
    assert int(second) < 2**32, "it has to fit into a token"


@pytest.mark.parametrize(
    ("stored", "put", "reply"),
    [
        (None, {}, 1),
        ({"epoch": 7, "connected_ms": 5000}, {"connected_ms": 1000}, 1),
        ({"epoch": 8, "connected_ms": 999}, {"connected_ms": 1000}, 1),
        ({"epoch": 8, "connected_ms": 1000}, {"connected_ms": 1000}, 1),
        ({"epoch": 8, "connected_ms": 1001}, {"connected_ms": 1000}, 0),
        ({"epoch": 8, "connected_ms": 1001}, {"connected_ms": 1000, "purge_ms": 0}, 1),
    ],
    ids=["nothing", "own", "older elsewhere", "equal elsewhere", "newer elsewhere", "newer but dead"],
)
async def test_presence_is_written_unless_a_newer_one_lives(
    client: Redis, stored: dict[str, int] | None, put: dict[str, int], reply: int
) -> None:
    if stored:
        await call(client, "presence_put", **stored)
    assert await call(client, "presence_put", **put) == reply
    value = await client.execute("HGET", KEYS.presence, "1")
    assert value.startswith(b"7|" if reply else b"8|")


@pytest.mark.parametrize(
    ("drop", "reply"),
    [({"epoch": 7}, 1), ({"epoch": 8}, 0), ({"epoch": ""}, 0), ({"epoch": "", "purge_ms": 0}, 1)],
    ids=["own", "another's", "purge of a fresh one", "purge of an old one"],
)
async def test_presence_is_removed_by_its_epoch_or_by_age(client: Redis, drop: dict[str, Any], reply: int) -> None:
    await call(client, "presence_put")
    assert await call(client, "presence_drop", **drop) == reply
    assert await client.execute("HEXISTS", KEYS.presence, "1") == 1 - reply
    assert await call(client, "presence_drop", account="2") == 0


async def test_the_books_are_read_with_as_many_tokens_as_were_asked_for(client: Redis) -> None:
    assert await call(client, "books_read") == [[], 0, [], []]
    for number in range(5):
        token = struct.pack(">HLL", 0, 100, number)
        record = b"c" + token + TIME + struct.pack(">L", number)
        await call(client, "entry_claim", token=token, record=record, field=number, seq=number)
    counts, number, tokens, _ = await call(client, "books_read", limit=3)
    assert (counts, number, len(tokens)) == ([b"distinct", b"5"], 5, 3)
    assert {token[:6] for token in tokens} == {struct.pack(">HL", 0, 100)}
    living = struct.pack(">L", 7) + struct.pack(">L", 100)
    _, number, tokens, _ = await call(client, "books_read", living=living)
    assert (number, tokens) == (5, []), "what the living hold is counted and not listed"
    _, _, tokens, own = await call(client, "books_read", living=living, own=living[4:], limit=3)
    assert (tokens, len(own)) == ([], 3), "what the caller holds stands apart"
