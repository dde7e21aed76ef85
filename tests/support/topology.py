"""Several Valkey processes as one: a cluster of three primaries, or a primary with a replica and a sentinel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import redis

from tests.support.valkey import ValkeyProcess, free_port, free_ports
from tests.support.waiting import block_until

SLOTS = 16384
SERVICE = "pallas-test"


@contextlib.contextmanager
def cluster() -> Iterator[list[ValkeyProcess]]:
    """Three primaries that share all slots; the servers end with the context."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(3):
            bus = free_port()
            options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", str(bus))
            nodes.append(stack.enter_context(ValkeyProcess(*options)))
        buses = [int(_ask(node, "CONFIG", "GET", "cluster-port")[1]) for node in nodes]
        for place, node in enumerate(nodes):
            first, last = SLOTS * place // 3, SLOTS * (place + 1) // 3 - 1
            _ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
            for other, bus in zip(nodes, buses, strict=True):
                if other is not node:
                    _ask(node, "CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        block_until(lambda: all(_knows_all(node) for node in nodes), 15, saying="the cluster has formed")
        yield nodes


def cluster_url(nodes: list[ValkeyProcess]) -> str:
    """Where clients of the cluster begin."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


class Watched:
    """A primary with one replica, and a sentinel that makes the replica primary when told to."""

    def __init__(self, primary: ValkeyProcess, replica: ValkeyProcess, sentinel_port: int) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel_port = sentinel_port

    @property
    def url(self) -> str:
        """Where clients ask for the primary."""
        return f"redis+sentinel://127.0.0.1:{self.sentinel_port}/{SERVICE}/0"

    def fail_over(self) -> None:
        """Have the sentinel promote the replica; returns when it says so."""
        with redis.Redis(port=self.sentinel_port, protocol=2) as client:
            client.execute_command("SENTINEL", "FAILOVER", SERVICE)
            block_until(lambda: self._primary_port(client) == self.replica.port, 20, saying="the replica was promoted")

    def ready(self) -> bool:
        """Whether the sentinel knows the replica and may promote it."""
        with redis.Redis(port=self.sentinel_port, protocol=2) as client:
            flat = client.execute_command("SENTINEL", "REPLICAS", SERVICE)
            return bool(flat) and "master-link-status" in str(flat) and "'err'" not in str(flat)

    @staticmethod
    def _primary_port(client: redis.Redis) -> int:
        return int(client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)[1])


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """A primary, a replica of it and one sentinel."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(ValkeyProcess())
        replica = stack.enter_context(ValkeyProcess("--replicaof", "127.0.0.1", str(primary.port)))
        sentinel = ValkeyProcess(sentinel_of=primary.port, service=SERVICE)
        stack.enter_context(sentinel)
        found = Watched(primary, replica, sentinel.port)
        block_until(found.ready, 20, saying="the sentinel knows the replica")
        yield found


def _ask(node: ValkeyProcess, *command: str | int) -> list[bytes]:
    with redis.Redis(port=node.port, protocol=2) as client:
        connection = client.connection_pool.get_connection()
        try:
            connection.send_command(*command)
            reply = connection.read_response()
        finally:
            client.connection_pool.release(connection)
        return list(reply) if isinstance(reply, list) else [reply]


def _knows_all(node: ValkeyProcess) -> bool:
    info = b"".join(_ask(node, "CLUSTER", "INFO"))
    return b"cluster_state:ok" in info and b"cluster_known_nodes:3" in info and b"cluster_slots_ok:16384" in info
