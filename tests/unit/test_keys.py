"""Key names: no two tuples give one key, nothing empty gets in, and nobody chooses another hash tag."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pallas.keys import BUCKETS, SEQUENCES_PER_BLOCK, Bucket, Keys, bucket_of, encode, notice_space, private_space
from pallas.redis.cluster import key_slot

PARTS = st.text(
    alphabet=st.one_of(st.sampled_from("ab1:{}@,!%|/ \0é中-_.~"), st.characters(exclude_categories=["Cs"])),
    min_size=1,
    max_size=8,
)
SPACES = st.one_of(
    st.builds(lambda group: ("group", group), PARTS),
    st.builds(lambda group: ("notice", group), PARTS),
    st.builds(lambda account, user: ("private", account, user), PARTS, PARTS),
)


def space_of(parts: tuple[str, ...]) -> str:
    match parts:
        case ("group", group):
            return encode(group)
        case ("notice", group):
            return notice_space(group)
        case (_, account, user):
            return private_space(account, user)
    raise AssertionError(parts)


@given(SPACES, SPACES)
@example(("private", "1", "23"), ("private", "12", "3"))
@example(("private", "1", ",2"), ("private", "1,", "2"))
@example(("notice", "1"), ("group", "!1"))
@example(("private", "1", "2"), ("group", "@1,2"))
def test_two_different_spaces_never_share_a_name(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (space_of(one) == space_of(other)) == (one == other)


@given(st.lists(st.tuples(SPACES, st.integers(0, 65535), st.integers(0, 2**31)), min_size=2, max_size=20, unique=True))
def test_two_different_tuples_never_give_one_key(tuples: list[tuple[tuple[str, ...], int, int]]) -> None:
    keys = Keys("pallas")
    named: dict[str, tuple[object, ...]] = {}
    for parts, seq, time_s in tuples:
        bucket = keys.bucket(space_of(parts))
        blocks = (bucket.block(seq), ("block", parts, seq // SEQUENCES_PER_BLOCK))
        hours = (bucket.hour(time_s), ("hour", parts, time_s // 3600))
        shared = [(bucket.open, "open"), (bucket.books, "books"), (bucket.plain, "plain")]
        for key, meaning in (blocks, hours, *((key, (name, bucket.number)) for key, name in shared)):
            assert named.setdefault(key, meaning) == meaning, "one key means two things"


@given(PARTS, PARTS)
def test_two_prefixes_never_share_a_key(one: str, other: str) -> None:
    # A colon in a prefix is meant: it makes folders in a key browser.
    if not all(part for prefix in (one, other) for part in prefix.split(":")):
        return
    assert (Keys(one).leases == Keys(other).leases) == (one == other)


@given(PARTS, SPACES)
def test_nobody_forges_a_hash_tag(prefix: str, parts: tuple[str, ...]) -> None:
    if not all(prefix.split(":")):
        return
    bucket = Keys(prefix).bucket(space_of(parts))
    tag = f"{{{bucket.number:02d}}}"
    every = [bucket.block(7), bucket.hour(10**9), bucket.plain, bucket.open, bucket.books]
    for key in every:
        assert key.count("{") == key.count("}") == 1
        assert tag in key
    assert len({key_slot(key.encode()) for key in every}) == 1


@pytest.mark.parametrize(
    "make", [encode, notice_space, lambda part: private_space(part, "1"), lambda part: private_space("1", part)]
)
def test_an_empty_part_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match="empty"):
        make("")  # type: ignore[operator]


@pytest.mark.parametrize("prefix", ["", ":", "a:", ":a", "a::b"])
def test_a_prefix_with_an_empty_part_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="empty"):
        Keys(prefix)


def test_half_of_a_surrogate_pair_is_refused_before_it_reaches_redis() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode("\ud800")


def test_an_ordinary_group_stays_readable() -> None:
    keys = Keys("my:bots")
    bucket = keys.bucket(encode("12345678"))
    assert bucket.block(130) == f"my:bots:{{{bucket.number:02d}}}:q:12345678:2"
    assert bucket.hour(7300) == f"my:bots:{{{bucket.number:02d}}}:t:12345678:2"


def test_groups_spread_over_the_buckets() -> None:
    counts = Counter(bucket_of(encode(str(100_000_000 + 37 * number))) for number in range(64 * 200))
    assert len(counts) == BUCKETS
    assert max(counts.values()) < 2 * min(counts.values())


def test_a_group_is_in_the_same_bucket_in_every_version() -> None:
    # Another answer here splits a running fleet: old and new workers would claim one message in two places.
    assert [bucket_of(space) for space in ("100", "987654321", "!100", "@1,2")] == [9, 33, 24, 23]


def test_the_three_control_keys_share_a_slot() -> None:
    keys = Keys("pallas")
    assert key_slot(keys.leases.encode()) == key_slot(keys.epoch.encode())


@pytest.mark.parametrize("seq", [0, 63, 64, 65535])
def test_a_block_holds_sixty_four_neighbouring_sequences(seq: int) -> None:
    bucket = Bucket("p", 3, "1")
    assert bucket.block(seq) == f"p:{{03}}:q:1:{seq // 64}"
