"""What only a fail-over can do to a command, and what sentinels that are gone must not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import redis as plain

from pallas.claim import Verdict
from tests.support.claimants import claimants
from tests.support.opened import opened
from tests.support.topology import SERVICE, Watched, watched
from tests.support.valkey import free_port
from tests.support.waiting import wait_until

WON, LOST = Verdict.WON, Verdict.LOST


@pytest.fixture(scope="module")
def sentinel() -> Iterator[Watched]:
    with watched() as found:
        yield found


async def test_when_the_primary_dies_claims_wait_for_its_successor() -> None:
    with watched() as found:
        async with claimants(found.url, 2) as (one, other):
            assert await one.report(1) is WON
            with plain.Redis(port=found.replica.port) as successor:
                await wait_until(successor.dbsize, saying="the replica has the first claim")
                found.primary.kill()
                claim = one.claim(2)
                assert await one.take(claim) is WON
                assert sum(one.meters.unknown.values()) >= 1
                assert successor.hget(claim.home, str(claim.field))[1:11] == claim.token
            # What the replica knew is remembered.
            assert await other.report(1) is LOST
            one.handled(claim)
            await one.settled()


async def test_a_sentinel_that_is_gone_does_not_hide_the_others(sentinel: Watched) -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    dead = free_port()
    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        hosts = f"127.0.0.1:{dead},127.0.0.1:{port},127.0.0.1:{sentinel.sentinel_ports[0]}"
        async with opened(f"redis+sentinel://{hosts}/{SERVICE}/0", dead_after_ms=3000) as client:
            assert await client.execute("PING") == b"PONG"


async def test_nothing_stays_open_to_the_sentinels(sentinel: Watched) -> None:
    async with opened(sentinel.url) as client:
        await asyncio.gather(*(client.execute("PING") for _ in range(1000)))
        with plain.Redis(port=sentinel.sentinel_ports[0]) as admin:
            mine = admin.client_id()
            others = [one for one in admin.client_list(_type="normal") if int(one["id"]) != mine]
        assert [one for one in others if not one["name"].startswith("sentinel-")] == []
