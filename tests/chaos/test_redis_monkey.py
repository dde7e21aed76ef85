"""One Redis server and a minute of faults, one every second or two, in random order: nothing lost, nothing doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.load import loaded, told
from tests.support.proxy import lag
from tests.support.valkey import ValkeyProcess, free_port

NewValkey = Callable[..., ValkeyProcess]
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


class Monkey:
    """Breaks the server in one of its ways and mends it again."""

    def __init__(self, server: ValkeyProcess, rng: random.Random) -> None:
        self._server = server
        self._rng = rng

    async def act(self) -> None:
        ways = (
            self._forget_scripts,
            self._kill_clients,
            self._sleep,
            self._restart,
            self._demote,
            self._fill,
            self._stop,
        )
        await self._rng.choice(ways)()

    async def _ask(self, *command: str | int) -> None:
        await asyncio.to_thread(self._server.ask, *command)

    async def _some_time(self) -> None:
        await lag(self._rng.uniform(0.1, 2))

    async def _forget_scripts(self) -> None:
        await self._ask("SCRIPT", "FLUSH")

    async def _kill_clients(self) -> None:
        await self._ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def _sleep(self) -> None:
        await self._ask("DEBUG", "SLEEP", f"{self._rng.uniform(0.1, 3):.2f}")

    async def _restart(self) -> None:
        self._server.kill()
        await self._some_time()
        await asyncio.to_thread(self._server.start)

    async def _demote(self) -> None:
        await self._ask("REPLICAOF", "127.0.0.1", free_port())
        await self._some_time()
        await self._ask("REPLICAOF", "NO", "ONE")

    async def _fill(self) -> None:
        await self._ask("CONFIG", "SET", "maxmemory", "1mb")
        await self._some_time()
        await self._ask("CONFIG", "SET", "maxmemory", "0")

    async def _stop(self) -> None:
        self._server.pause()
        await self._some_time()
        self._server.resume()


@pytest.mark.row("F11–F20")
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_minute_of_faults_costs_nothing(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest, seed: int
) -> None:
    rng = random.Random(seed)
    server = new_valkey("--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes")
    monkey = Monkey(server, rng)
    async with loaded(server.url, tmp_path, workers=3) as load:
        async with load.running():
            while load.now < 60:
                await monkey.act()
                await lag(rng.uniform(0.5, 2))
            await load.resumed(10)
        outcome = await load.settled(within=20)
        told(request, outcome, "F11–F20", f"faults of all kinds for a minute, seed {seed}")
