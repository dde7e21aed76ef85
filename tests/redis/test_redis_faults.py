"""One Redis server that is broken under load: every message is answered once, and workers go on by themselves.

Where a fault may cost messages, the window is what was asked in its time by the test's own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
import redis as plain

from tests.support.load import QUICK, again_and_again, loaded, told
from tests.support.proxy import Proxy, lag
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.waiting import wait_until

NewValkey = Callable[..., ValkeyProcess]


@pytest.mark.row("F13")
async def test_scripts_that_are_forgotten_all_the_time_cost_nothing(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with loaded(redis_url, tmp_path) as load:
        async with again_and_again(lambda: valkey.ask("SCRIPT", "FLUSH"), 0.1):
            await load.run(2.5)
        told(request, await load.settled(), "F13", "SCRIPT FLUSH each 100 ms")
        assert all(shard.meters.unknown == {} for shard in load._fleet), "nobody noticed"


@pytest.mark.row("F20")
async def test_connections_that_are_killed_again_and_again_cost_nothing(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey()
    async with loaded(server.url, tmp_path) as load:
        async with again_and_again(lambda: server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"), 0.25):
            await load.run(3)
        told(request, await load.settled(), "F20", "CLIENT KILL of all, four times a second")


@pytest.mark.row("F20")
async def test_a_server_without_a_place_for_us_is_waited_for(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey()
    async with loaded(server.url, tmp_path) as load:
        with plain.Redis(port=server.port) as admin:
            async with load.running():
                await load.resumed(5)
                admin.config_set("maxclients", 1)
                admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                lost_at = load.now
                await lag(1)
                assert load.answered_since(lost_at + 0.1) == []
                admin.config_set("maxclients", 1000)
                back = await load.resumed(3)
        told(request, await load.settled(), "F20", "no place for us on the server", back_s=back)


@pytest.mark.row("F12")
async def test_a_server_that_sleeps_is_waited_for(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey("--enable-debug-command", "yes")
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            sleeping = asyncio.create_task(asyncio.to_thread(server.ask, "DEBUG", "SLEEP", 3))
            await sleeping
            back = await load.resumed(5)
        assert sum(sum(shard.meters.unknown.values()) for shard in load._fleet) > 0, "it was noticed"
        told(request, await load.settled(), "F12", "DEBUG SLEEP 3", back_s=back)


@pytest.mark.row("F12")
async def test_a_server_that_is_busy_with_a_script_is_waited_for(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey("--busy-reply-threshold", "100")
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            looping = asyncio.create_task(asyncio.to_thread(endless_script, server))
            await wait_until(lambda: all(refused(shard.meters.unknown) for shard in load._fleet))
            await lag(1)
            await asyncio.to_thread(server.ask, "SCRIPT", "KILL")
            await looping
            back = await load.resumed(3)
        told(request, await load.settled(), "F12", "BUSY with an endless script", back_s=back)


def endless_script(server: ValkeyProcess) -> None:
    with contextlib.suppress(plain.ResponseError):
        server.ask("EVAL", "while true do end", 0)


@pytest.mark.row("F12")
async def test_a_server_that_still_loads_its_data_is_waited_for(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    slow = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    server = new_valkey("--appendonly", "yes", *slow)
    with plain.Redis(port=server.port) as admin:
        admin.mset({f"others:{number}": "x" * 20 for number in range(400)})
        # Into the base file, whose keys are loaded with the delay.
        admin.bgrewriteaof()
        await wait_until(lambda: admin.info("persistence")["aof_rewrite_in_progress"] == 0)
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            server.kill()
            await asyncio.to_thread(server.start)
            assert server.info("persistence")["loading"] == "1"
            await wait_until(lambda: server.info("persistence")["loading"] == "0", 20)
            back = await load.resumed(3)
        told(request, await load.settled(), "F12", "LOADING after a restart", back_s=back)


@pytest.mark.row("F11")
@pytest.mark.parametrize("fsync", ["always", "everysec"])
async def test_a_server_that_was_killed_and_started_again_has_forgotten_nothing(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest, fsync: str
) -> None:
    server = new_valkey("--appendonly", "yes", "--appendfsync", fsync)
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            await lag(0.5)
            server.kill()
            await lag(1)
            await asyncio.to_thread(server.start)
            back = await load.resumed(5)
            await lag(0.5)
        told(request, await load.settled(), "F11", f"kill -9 of Redis, AOF {fsync}", back_s=back)


@pytest.mark.row("F11")
async def test_a_server_that_forgot_everything_costs_what_was_under_way_and_no_more(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey()
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            await lag(0.5)
            killed = load.now
            server.kill()
            await asyncio.to_thread(server.start)
            started = load.now
            back = await load.resumed(5)
            await lag(QUICK["lease_s"])
        # Claimed shortly before and forgotten; or in hand when its worker learned, at the next renewal, that its epoch
        # is nobody's any more.
        window = load.between(killed - 0.3, started + QUICK["lease_s"] / 3 + 0.3)
        outcome = await load.settled(window, within=5)
        told(request, outcome, "F11", "kill -9 of Redis, nothing on disk", back_s=back)
        forgotten = load.between(killed - 0.3, started)
        assert not set(outcome.doubled) - forgotten, "what a worker remembers it does not answer again"
        assert len(outcome.lost) <= 2 * len(load._fleet), outcome.lost


@pytest.mark.row("F14")
async def test_a_primary_that_was_demoted_and_promoted_again_is_written_at_once(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey()
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            server.ask("REPLICAOF", "127.0.0.1", free_port())
            await wait_until(lambda: all(refused(shard.meters.unknown) for shard in load._fleet))
            await lag(1)
            server.ask("REPLICAOF", "NO", "ONE")
            back = await load.resumed(2)
        assert server.refusals()["READONLY"] > 0
        told(request, await load.settled(), "F14", "READONLY for a second", back_s=back)


def refused(unknown: dict[str, int]) -> int:
    return unknown.get("refused", 0)


@pytest.mark.row("F18")
async def test_while_memory_is_full_nothing_is_answered_that_was_not_stored(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey()
    async with loaded(server.url, tmp_path) as load:
        async with load.running():
            await load.resumed(5)
            server.ask("CONFIG", "SET", "maxmemory", "1mb")
            await wait_until(lambda: all(refused(shard.meters.unknown) for shard in load._fleet))
            full = load.now
            await lag(1.5)
            assert load.answered_since(full) == []
            server.ask("CONFIG", "SET", "maxmemory", "0")
            back = await load.resumed(3)
        told(request, await load.settled(), "F18", "memory full under noeviction", back_s=back)


@pytest.mark.row("F20")
async def test_a_server_that_closes_what_is_idle_is_not_noticed(
    new_valkey: NewValkey, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    server = new_valkey("--timeout", "1")
    async with loaded(server.url, tmp_path) as load:
        for _ in range(3):
            await load.run(0.1)
            await load.settled()
            await lag(2.2)
        told(request, await load.settled(), "F20", "idle connections closed by the server")
        assert all(shard.meters.unknown == {} for shard in load._fleet)


@pytest.mark.row("F27")
async def test_replies_that_are_cut_on_the_wire_cost_nothing(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert redis_url
    async with Proxy(valkey.port) as proxy, loaded(proxy.url, tmp_path) as load:

        def cut() -> None:
            proxy.cut_before_reply = 1

        async with again_and_again(cut, 0.1):
            await load.run(3)
        told(request, await load.settled(), "F27", "the reply cut on the wire, ten times a second")
