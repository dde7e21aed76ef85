"""The systems that are benched, as processes of their own: a Valkey, one worker, and the baseline's application.

Each is ended by the handle it was started with, also on Ctrl-C, and cannot outlive this process (`pallas.procs`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pallas.claims import Claims
from pallas.clock import SystemClock
from pallas.keys import BUCKETS, Keys
from pallas.metrics import Meters
from pallas.procs import Child, spawn
from pallas.redis import EmbeddedServer, Redis, open_redis
from pallas.tasks import Tasks
from shard.registry import Lease

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "bench"
CLAIM_TTL_S = 86_400
PATIENCE_S = 3.0
"""How long a claim is asked again before the outage rules begin, as a worker is set by default."""
_START_S = 30.0
_STOP_S = 10.0


@asynccontextmanager
async def valkey(**settings: str) -> AsyncIterator[tuple[EmbeddedServer, Redis, Path]]:
    """A Valkey of its own with the product's settings, a client for it, and the data folder it serves."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as name:
        folder = Path(name)
        async with EmbeddedServer(folder / "data", settings=settings) as server:
            tasks = Tasks()
            redis = open_redis(server.target, tasks)
            try:
                yield server, redis, folder
            finally:
                await redis.close()
                await tasks.stop()


@asynccontextmanager
async def claims_of(redis: Redis, keys: Keys, shard_id: int) -> AsyncIterator[Claims]:
    """The claims of one worker that holds a lease, inside this process."""
    tasks = Tasks()
    lease = Lease(redis, keys, SystemClock(), shard_id=shard_id, life_s=30.0, info=dict)
    await lease.take()
    tasks.start(lease.keep(), "lease.keep")
    try:
        yield Claims(redis, lease, tasks, Meters(), ttl_s=CLAIM_TTL_S)
    finally:
        await lease.release()
        await tasks.stop()


@asynccontextmanager
async def worker(folder: Path, app: str) -> AsyncIterator[tuple[str, Child]]:
    """One worker as an operator starts it; its WebSocket address."""
    port = free_port()
    arguments = ["worker", "--shard-id", "0", "--app", app, "--data", str(folder / "data"), "--worker-port", str(port)]
    environment = {"PALLAS_REDIS_PREFIX": PREFIX}
    async with _process("worker", ["-m", "pallas.cli", *arguments], environment, folder, port) as child:
        yield f"ws://127.0.0.1:{port}/onebot/v11/ws", child


@asynccontextmanager
async def nonebot(folder: Path) -> AsyncIterator[str | None]:
    """The baseline's application; None where it is not installed."""
    if not has_nonebot():
        yield None
        return
    port = free_port()
    async with _process("nonebot", ["-m", "bench.nonebot_end", str(port)], {}, folder, port):
        yield f"ws://127.0.0.1:{port}/onebot/v11/ws"


def has_nonebot() -> bool:
    """Whether the baseline can be measured here."""
    try:
        return importlib.util.find_spec("nonebot.adapters.onebot") is not None
    except ModuleNotFoundError:
        return False


@asynccontextmanager
async def _process(
    name: str, arguments: Sequence[str], environment: Mapping[str, str], folder: Path, port: int
) -> AsyncIterator[Child]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PALLAS_", "PYTHON"))}
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        child = await spawn(
            name,
            [sys.executable, *arguments],
            cwd=folder,
            env={**inherited, **environment, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
        )
    try:
        await _listens(child, port, log)
        yield child
    finally:
        await child.stop(_STOP_S)


async def _listens(child: Child, port: int, log: Path) -> None:
    """Wait until the process takes connections. Raises RuntimeError with the end of its output if it never does."""
    limit = asyncio.get_running_loop().time() + _START_S
    while child.exit_code is None and asyncio.get_running_loop().time() < limit:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    said = log.read_text("utf-8", errors="replace")[-1500:]
    raise RuntimeError(f"{child.name} does not listen on port {port} (exit code {child.exit_code}); it said:\n{said}")


async def books(redis: Redis) -> tuple[int, dict[str, int]]:
    """How many entries are open, and the counts of all buckets of the benched worker."""
    keys = Keys(PREFIX)
    buckets = [keys.bucket_keys(number) for number in range(BUCKETS)]
    opened = await asyncio.gather(*(redis.execute("HLEN", bucket.open) for bucket in buckets))
    counted = await asyncio.gather(*(redis.execute("HGETALL", bucket.books) for bucket in buckets))
    sums: dict[str, int] = {}
    for row in counted:
        for name, count in zip(row[::2], row[1::2], strict=True):
            sums[name.decode()] = sums.get(name.decode(), 0) + int(count)
    return sum(opened), sums


def free_port() -> int:
    """A port of the loopback address that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
