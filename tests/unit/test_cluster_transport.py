"""Batches for a cluster: each node's share in one write; slots that moved are followed, dead nodes fail alone."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.errors import RedisUnavailable, ReplyError, ReplyUnknown
from pallas.redis.batch import Command
from pallas.redis.cluster import SLOTS, Address, ClusterTransport, key_slot, slot_of

A, B, C = ("a", 1), ("b", 2), ("c", 3)
HALF = SLOTS // 2
LOW, HIGH = "b", "a"
"""A key of the lower half of the slots and one of the upper half."""


class Node:
    """One node: what it was sent, and what it answers."""

    def __init__(self, address: Address, ranges: Callable[[], Any]) -> None:
        self.address = address
        self.batches: list[list[Command]] = []
        self.answers: dict[str, Any] = {}
        self.is_closed = False
        self._ranges = ranges

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        batch = [command for command in commands if command[0] != "CLUSTER"]
        if batch:
            self.batches.append(batch)
        return [self._answer(command) for command in commands]

    def _answer(self, command: Command) -> Any:
        found = self._ranges() if command[0] == "CLUSTER" else self.answers.get(str(command[0]), self.address[0])
        if isinstance(found, RedisUnavailable | ReplyUnknown):
            raise found
        return found

    async def close(self) -> None:
        self.is_closed = True


class Cluster:
    """Nodes by address, and the slots they tell."""

    def __init__(self) -> None:
        self.ranges: Any = [[0, HALF - 1, [b"a", 1, b"id"]], [HALF, SLOTS - 1, [b"b", 2, b"id"], [b"r", 9, b"id"]]]
        self.nodes: dict[Address, Node] = {}
        self.learned = 0
        self.transport = ClusterTransport([A, B], self._open)

    def __getitem__(self, address: Address) -> Node:
        return self._open(*address)

    def _open(self, host: str, port: int) -> Node:
        node = self.nodes.get((host, port))
        if node is None or node.is_closed:
            node = self.nodes[host, port] = Node((host, port), self._told)
        return node

    def _told(self) -> Any:
        self.learned += 1
        return self.ranges


def test_the_two_keys_are_where_the_tests_think() -> None:
    assert key_slot(LOW.encode()) < HALF <= key_slot(HIGH.encode())


@pytest.mark.parametrize(
    ("key", "hashed"),
    [("{x}a", "x"), ("a{x}b{y}", "x"), ("a{}b", "a{}b"), ("a{b", "a{b"), ("a}b{", "a}b{"), ("{{x}}", "{x"), ("", "")],
)
def test_a_slot_is_that_of_the_hash_tag_where_there_is_one(key: str, hashed: str) -> None:
    assert key_slot(key.encode()) == crc_hqx(hashed.encode(), 0) % SLOTS


@given(st.binary(max_size=12))
def test_slots_are_those_of_the_reference_client(key: bytes) -> None:
    from redis.crc import key_slot as reference  # noqa: PLC0415  (the oracle of this test alone)

    assert key_slot(key) == reference(key)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", "k"), b"k"),
        (("GET", b"\xff"), b"\xff"),
        (("HSET", "k", "f", 1), b"k"),
        (("EVALSHA", "sha", 2, "k", "l", "x"), b"k"),
        (("EVAL", "source", 1, "k"), b"k"),
        (("EVAL", "source", 0), None),
        (("TIME",), None),
        (("CONFIG", "GET", "x"), None),
    ],
)
def test_the_key_of_a_command(command: Command, key: bytes | None) -> None:
    assert slot_of(command) == (None if key is None else key_slot(key))


async def test_each_node_gets_its_share_as_one_write_and_replies_stand_in_order() -> None:
    cluster = Cluster()
    replies = await cluster.transport.exchange([("GET", LOW), ("GET", HIGH), ("GET", LOW), ("TIME",)])
    assert replies == ["a", "b", "a", "a"]
    assert cluster[A].batches == [[("GET", LOW), ("GET", LOW), ("TIME",)]]
    assert cluster[B].batches == [[("GET", HIGH)]]
    await cluster.transport.exchange([("GET", LOW)])
    assert cluster.learned == 1, "the map is kept"


async def test_a_slot_that_moved_is_followed_and_the_map_read_again() -> None:
    cluster = Cluster()
    cluster[A].answers["GET"] = ReplyError(f"MOVED {key_slot(LOW.encode())} c:3")
    assert await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)]) == ["c", "b"]
    assert cluster[B].batches == [[("GET", HIGH)]], "what was answered is not asked again"
    cluster.ranges[0][2] = [b"c", 3, b"id"]
    assert await cluster.transport.exchange([("GET", LOW)]) == ["c"]
    assert cluster.learned == 2


async def test_a_slot_on_its_way_is_asked_for_with_leave() -> None:
    cluster = Cluster()
    cluster[A].answers["GET"] = ReplyError(f"ASK {key_slot(LOW.encode())} c:3")
    assert await cluster.transport.exchange([("GET", LOW), ("SET", LOW, 1), ("GET", LOW)]) == ["c", "a", "c"]
    assert cluster[C].batches == [[("ASKING",), ("GET", LOW), ("ASKING",), ("GET", LOW)]]
    await cluster.transport.exchange([("SET", LOW, 1)])
    assert cluster.learned == 1, "the slot has not moved yet"


async def test_nodes_that_send_each_other_in_circles_are_not_followed_for_ever() -> None:
    cluster = Cluster()
    cluster[A].answers["GET"] = ReplyError("MOVED 1 b:2")
    cluster[B].answers["GET"] = ReplyError("MOVED 1 a:1")
    (reply,) = await cluster.transport.exchange([("GET", LOW)])
    assert isinstance(reply, ReplyError)
    assert len(cluster[A].batches) + len(cluster[B].batches) == 5


async def test_a_dead_node_fails_its_share_alone_and_is_looked_for_again() -> None:
    cluster = Cluster()
    cluster[A].answers["GET"] = RedisUnavailable("away")
    lost, kept = await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)])
    assert isinstance(lost, RedisUnavailable)
    assert kept == "b"
    cluster.ranges[0][2] = [b"c", 3, b"id"]
    assert await cluster.transport.exchange([("GET", LOW)]) == ["c"]


async def test_where_no_node_answers_the_whole_batch_has_failed() -> None:
    cluster = Cluster()
    cluster[A].answers["GET"] = RedisUnavailable("away")
    cluster[B].answers["GET"] = ReplyUnknown("late")
    # One of them may have run: so "surely not sent" would be a lie.
    with pytest.raises(ReplyUnknown):
        await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)])


async def test_a_slot_that_nobody_serves_is_told_and_looked_for_again() -> None:
    cluster = Cluster()
    whole = cluster.ranges
    cluster.ranges = whole[1:]
    refused, kept = await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)])
    assert isinstance(refused, ReplyError)
    assert refused.code == "CLUSTERDOWN"
    assert kept == "b"
    cluster.ranges = whole
    assert await cluster.transport.exchange([("GET", LOW)]) == ["a"]


async def test_a_node_without_a_name_is_the_one_that_was_asked() -> None:
    cluster = Cluster()
    cluster.ranges = [[0, SLOTS - 1, [None, 7, b"id"]]]
    await cluster.transport.exchange([("GET", LOW)])
    assert cluster["a", 7].batches == [[("GET", LOW)]]
    cluster[A].answers["GET"] = "unused"


async def test_the_map_is_read_from_whoever_answers() -> None:
    cluster = Cluster()
    cluster[A]._ranges = lambda: RedisUnavailable("away")
    assert await cluster.transport.exchange([("GET", HIGH)]) == ["b"]


async def test_where_nobody_tells_the_map_nothing_is_sent() -> None:
    cluster = Cluster()
    cluster.ranges = ReplyError("ERR This instance has cluster support disabled")
    with pytest.raises(
        RedisUnavailable, match=r"no node of the Redis Cluster tells its slots.*cluster support disabled"
    ):
        await cluster.transport.exchange([("GET", LOW)])
    assert cluster[A].batches == []


async def test_connections_to_nodes_that_left_are_closed() -> None:
    cluster = Cluster()
    cluster.ranges[0][2] = [b"c", 3, b"id"]
    await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)])
    gone = cluster.nodes[C]
    cluster.ranges[0][2] = [b"a", 1, b"id"]
    gone.answers["GET"] = RedisUnavailable("away")
    await cluster.transport.exchange([("GET", LOW), ("GET", HIGH)])
    await cluster.transport.exchange([("GET", LOW)])
    assert gone.is_closed
    await cluster.transport.close()
    assert all(node.is_closed for node in cluster.nodes.values())
