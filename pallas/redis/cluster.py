"""Batches for a Redis Cluster: each node's share is one write on a connection of its own.

The slot map is read from whichever node answers, and again once a node said that a slot had moved or could not be
reached. MOVED and ASK prove that nothing ran, so the command follows them; nothing else is repeated here.
"""

from __future__ import annotations

import asyncio
from binascii import crc_hqx
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pallas.errors import RedisRefused, RedisUnavailable, ReplyError, ReplyUnknown
from pallas.redis.batch import Command, Transport

Address = tuple[str, int]
SLOTS = 16384
_HOPS = 5
_SCRIPT_CALLS = frozenset({"EVAL", "EVALSHA"})
_KEYLESS = frozenset({"CLUSTER", "CONFIG", "INFO", "PING", "SCRIPT", "TIME"})


class ClusterTransport:
    """Carries one batch at a time to the nodes it concerns; `open_node` makes the transport of one node."""

    def __init__(self, seeds: Sequence[Address], open_node: Callable[[str, int], Transport]) -> None:
        self._seeds = seeds
        self._open_node = open_node
        self._nodes: dict[Address, Transport] = {}
        self._owners: list[Address | None] = []
        self._is_stale = True

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        if self._is_stale:
            await self._learn()
        replies: list[Any] = [None] * len(commands)
        way: dict[Address, list[tuple[int, bool]]] = defaultdict(list)
        for place, command in enumerate(commands):
            slot = slot_of(command)
            owner = self._owners[slot] if slot is not None else next(filter(None, self._owners), self._seeds[0])
            if owner is None:
                replies[place] = ReplyError(f"CLUSTERDOWN no node of the Redis Cluster serves slot {slot}")
                self._is_stale = True
            else:
                way[owner].append((place, False))
        for _ in range(_HOPS):
            await asyncio.gather(*(self._share(owner, share, commands, replies) for owner, share in way.items()))
            way = self._redirected(way, replies)
            if not way:
                break
        lost = [reply for reply in replies if isinstance(reply, RedisUnavailable | ReplyUnknown)]
        if len(lost) == len(replies):
            raise next((error for error in lost if isinstance(error, ReplyUnknown)), lost[0])
        return replies

    async def close(self) -> None:
        await self._drop(list(self._nodes))

    async def _share(
        self, address: Address, share: list[tuple[int, bool]], commands: Sequence[Command], replies: list[Any]
    ) -> None:
        batch: list[Command] = []
        for place, asking in share:
            if asking:
                batch.append(("ASKING",))
            batch.append(commands[place])
        try:
            answers = iter(await self._node(address).exchange(batch))
        except (RedisUnavailable, ReplyUnknown) as error:
            self._is_stale = True
            for place, _ in share:
                replies[place] = error
            return
        for place, asking in share:
            if asking:
                next(answers)
            replies[place] = next(answers)

    def _redirected(
        self, way: dict[Address, list[tuple[int, bool]]], replies: list[Any]
    ) -> dict[Address, list[tuple[int, bool]]]:
        """Where the commands go that a node sent on, and whether it wants ASKING before each."""
        onward: dict[Address, list[tuple[int, bool]]] = defaultdict(list)
        for (host, _), share in way.items():
            for place, _ in share:
                reply = replies[place]
                if isinstance(reply, ReplyError) and reply.code in {"MOVED", "ASK"}:
                    to_host, _, to_port = str(reply).split(" ")[2].rpartition(":")
                    onward[to_host or host, int(to_port)].append((place, reply.code == "ASK"))
                    self._is_stale = self._is_stale or reply.code == "MOVED"
        return onward

    async def _learn(self) -> None:
        reason = ""
        for address in dict.fromkeys([*filter(None, self._owners), *self._seeds]):
            try:
                (ranges,) = await self._node(address).exchange([("CLUSTER", "SLOTS")])
            except RedisRefused:
                # All nodes of a cluster have the same users.
                raise
            except (RedisUnavailable, ReplyUnknown) as error:
                ranges = error
            if isinstance(ranges, list):
                self._owners = _owners(ranges, address[0])
                self._is_stale = False
                await self._drop(self._nodes.keys() - {*self._owners, *self._seeds})
                return
            reason = str(ranges)
        raise RedisUnavailable(f"no node of the Redis Cluster tells its slots, the last one tried said: {reason}")

    def _node(self, address: Address) -> Transport:
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = self._open_node(*address)
        return node

    async def _drop(self, addresses: Iterable[Address]) -> None:
        for address in addresses:
            await self._nodes.pop(address).close()


def keys_of(command: Command) -> tuple[bytes | str | int, ...]:
    """A command's keys: all of a script call, else the first argument."""
    name = command[0]
    if name in _SCRIPT_CALLS:
        return command[3 : 3 + int(command[2])]
    return () if name in _KEYLESS else command[1:2]


def slot_of(command: Command) -> int | None:
    """The slot of a command's first key; None for a command without keys."""
    keys = keys_of(command)
    if not keys:
        return None
    key = keys[0]
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def key_slot(key: bytes) -> int:
    """The slot of a key: of its hash tag alone, where it has one."""
    start = key.find(b"{")
    if start >= 0:
        end = key.find(b"}", start + 1)
        if end > start + 1:
            key = key[start + 1 : end]
    return crc_hqx(key, 0) % SLOTS


def _owners(ranges: list[Any], asked: str) -> list[Address | None]:
    owners: list[Address | None] = [None] * SLOTS
    for first, last, primary, *_ in ranges:
        # A node that does not know its own name leaves it empty: it is the one that was asked.
        address = ((primary[0] or b"").decode() or asked, int(primary[1]))
        owners[first : last + 1] = [address] * (last + 1 - first)
    return owners
