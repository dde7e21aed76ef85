"""Upgrades on a real port: who is let in, who is refused before the upgrade, and that nothing slow stands before it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from websockets.exceptions import InvalidStatus

from pallas import demo
from pallas.clock import SystemClock
from pallas.onebot.link import Link, Role
from pallas.onebot.listener import Listener, ListenerSettings, Page
from shard.worker import Worker
from tests.support.mini_end import COSTUMES, MiniEnd, headers
from tests.support.shards import listening
from tests.support.valkey import ValkeyProcess, free_port
from tests.support.waiting import wait_until

TOKEN = "t0ken-of-the-test"
NAPCAT = headers("napcat", "900001", TOKEN)


class Guests:
    """Keeps who came and what they said."""

    def __init__(self) -> None:
        self.links: list[Link] = []
        self.frames: list[bytes] = []
        self.gone: list[tuple[int, str]] = []
        self.results: list[str] = []

    def opened(self, link: Link) -> None:
        self.links.append(link)

    def frame(self, link: Link, data: bytes) -> None:
        del link
        self.frames.append(data)

    def too_large(self, link: Link) -> None:
        del link

    def closed(self, link: Link, code: int, reason: str) -> None:
        assert not link.is_open
        self.gone.append((code, reason))


@contextlib.asynccontextmanager
async def door(**settings: Any) -> AsyncIterator[tuple[str, Guests]]:
    """A listener alone: its address and its guests."""
    guests = Guests()
    port = free_port()
    given = {"path": "/onebot/v11/ws", "token": TOKEN, "max_frame_bytes": 1 << 20, "max_links": 100, **settings}
    chosen = ListenerSettings(host="127.0.0.1", port=port, ping_interval_s=20.0, **given)

    async def page() -> Page:
        return Page(200, b"ok\n")

    listener = Listener(chosen, guests, SystemClock(), pages={"/healthz": page}, handshakes=guests.results.append)
    await listener.start()
    try:
        yield f"ws://127.0.0.1:{port}/onebot/v11/ws", guests
    finally:
        await listener.stop()


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in NAPCAT.items() if name not in names}


@pytest.mark.parametrize(
    "given, query, role",
    [
        *[(headers(costume, "900001", TOKEN), "", Role.UNIVERSAL) for costume in COSTUMES],
        (headers("lagrange", "900001", TOKEN, "API"), "", Role.API),
        (headers("lagrange", "900001", TOKEN, "Event"), "", Role.EVENT),
        (headers("gocq", "900001", TOKEN, "API"), "", Role.API),
        (headers("gocq", "900001", TOKEN, "Event"), "", Role.EVENT),
        ({**NAPCAT, "x-client-role": "uNiVeRsAl"}, "", Role.UNIVERSAL),
        ({**NAPCAT, "x-client-role": "EVENT"}, "", Role.EVENT),
        (without("x-client-role"), "", Role.UNIVERSAL),
        ({**NAPCAT, "x-client-role": ""}, "", Role.UNIVERSAL),
        ({**NAPCAT, "Authorization": f"bearer {TOKEN}"}, "", Role.UNIVERSAL),
        ({**NAPCAT, "Authorization": f"Token {TOKEN}"}, "", Role.UNIVERSAL),
        ({**NAPCAT, "Authorization": f"  Bearer   {TOKEN}  "}, "", Role.UNIVERSAL),
        (without("Authorization"), f"?access_token={TOKEN}", Role.UNIVERSAL),
        ({**NAPCAT, "Authorization": "Bearer "}, f"?access_token={TOKEN}", Role.UNIVERSAL),
        (without("User-Agent"), "", Role.UNIVERSAL),
        (without(), "/", Role.UNIVERSAL),
    ],
)
async def test_every_form_of_the_headers_is_let_in(given: dict[str, str], query: str, role: Role) -> None:
    async with door() as (url, guests), MiniEnd(url + query, given=given):
        (link,) = guests.links
        assert (link.bot_id, link.role) == ("900001", role)
        assert guests.results == ["accepted"]


@pytest.mark.parametrize(
    "given, target, status, reason",
    [
        (without("Authorization"), "", 401, "no_token"),
        ({**NAPCAT, "Authorization": "Bearer "}, "", 401, "no_token"),
        ({**NAPCAT, "Authorization": "Bearer"}, "", 401, "no_token"),
        ({**NAPCAT, "Authorization": "Basic dXNlcjp0MGtlbg=="}, "", 401, "no_token"),
        ({**NAPCAT, "Authorization": "Bearer wrong"}, "", 403, "wrong_token"),
        ({**NAPCAT, "Authorization": f"Bearer {TOKEN}x"}, "", 403, "wrong_token"),
        (without("Authorization"), "?access_token=wrong", 403, "wrong_token"),
        ({**NAPCAT, "Authorization": "Bearer wrong"}, f"?access_token={TOKEN}", 403, "wrong_token"),
        ({**NAPCAT, "x-client-role": "Observer"}, "", 400, "bad_role"),
        ({**NAPCAT, "X-Self-ID": "nobody"}, "", 400, "bad_account"),
        ({**NAPCAT, "X-Self-ID": "0"}, "", 400, "bad_account"),
        (NAPCAT, "x", 404, "wrong_path"),
        (without("Authorization"), "/deeper", 404, "wrong_path"),
    ],
)
async def test_who_may_not_in_is_told_so_before_the_upgrade(
    lines: list[Any], given: dict[str, str], target: str, status: int, reason: str
) -> None:
    async with door() as (url, guests):
        with pytest.raises(InvalidStatus) as refused:
            await MiniEnd(url + target, given=given).dial()
        assert refused.value.response.status_code == status
        assert ("WWW-Authenticate" in refused.value.response.headers) == (status == 401)
        assert (guests.results, guests.links) == ([reason], [])
        assert TOKEN not in str(lines)
        assert "wrong\n" not in refused.value.response.body.decode()


async def test_without_a_token_an_end_of_this_machine_is_let_in_with_an_empty_bearer() -> None:
    async with door(token="") as (url, guests), MiniEnd(url, "lagrange"):
        assert guests.results == ["accepted"]


async def test_without_a_token_a_web_page_and_a_proxied_stranger_are_refused() -> None:
    async with door(token="") as (url, guests):
        for name in ("Origin", "X-Forwarded-For"):
            with pytest.raises(InvalidStatus, match="403"):
                await MiniEnd(url, given={**NAPCAT, name: "http://elsewhere.example"}).dial()
        assert guests.results == ["from_browser", "not_loopback"]


async def test_an_end_that_retries_a_wrong_token_for_ever_costs_a_few_lines(lines: list[Any]) -> None:
    async with door() as (url, guests):
        end = MiniEnd(url, given={**NAPCAT, "Authorization": "Bearer a-secret-of-the-end"})
        for _ in range(100):
            with pytest.raises(InvalidStatus):
                await end.dial()
        assert guests.results == ["wrong_token"] * 100
        refused = [line for line in lines if line["event"] == "link.refused"]
        assert 1 <= len(refused) <= 10
        assert "PALLAS_ONEBOT_TOKEN" in refused[0]["hint"]
        assert "a-secret-of-the-end" not in str(lines)


async def test_an_upgrade_that_is_never_finished_is_cut_off() -> None:
    async with door(open_timeout_s=0.3) as (url, guests):
        port = int(url.split(":")[2].partition("/")[0])
        for begun in (b"", b"GET /onebot/v11/ws HTTP/1.1\r\nHost: a\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            async with asyncio.timeout(5):
                await reader.read()
            writer.close()
            await writer.wait_closed()
        assert guests.links == []
        async with MiniEnd(url, given=NAPCAT):
            assert len(guests.links) == 1


async def test_no_more_links_than_allowed_also_when_all_come_at_once() -> None:
    async with door(max_links=3) as (url, guests):
        ends = [MiniEnd(url, given=NAPCAT) for _ in range(10)]
        results = await asyncio.gather(*(end.dial() for end in ends), return_exceptions=True)
        assert len(guests.links) == 3
        refused = [one for one in results if isinstance(one, InvalidStatus)]
        assert [one.response.status_code for one in refused] == [503] * 7
        for end in ends:
            await end.hang_up()
        await wait_until(lambda: len(guests.gone) == 3)
        async with MiniEnd(url, given=NAPCAT):
            assert len(guests.links) == 4


async def test_an_end_without_an_account_in_its_headers_is_known_by_its_first_frame(
    redis_url: str, tmp_path: Path
) -> None:
    async with (
        listening(redis_url, tmp_path, demo.app) as worker,
        MiniEnd(worker.url, given=without("X-Self-ID", "Authorization")) as end,
    ):
        await wait_until(lambda: worker.meters.links == 1)
        assert len(worker.roster) == 0
        await end.tell({"status": "ok", "retcode": 0, "echo": "nobody asked"})
        await end.say("ping 1", 1)
        await wait_until(lambda: end.sent)
        assert "900001" in worker.roster
        await end.say("ping 2", 2, self_id=900002)
        await wait_until(lambda: worker.meters.refused)
        assert "900002" not in worker.roster


def fetch(worker: Worker, path: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{worker.port}{path}", timeout=5) as answer:
        return answer.status, answer.read().decode()


async def test_pages_are_served_on_the_same_port_without_a_token(redis_url: str, tmp_path: Path) -> None:
    async with (
        listening(redis_url, tmp_path, demo.app, onebot_token=TOKEN) as worker,
        MiniEnd(worker.url, token=TOKEN) as end,
    ):
        assert await asyncio.to_thread(fetch, worker, "/healthz?x=1") == (200, "ok\n")
        assert await asyncio.to_thread(fetch, worker, "/readyz") == (200, "ok\n")
        status, text = await asyncio.to_thread(fetch, worker, "/metrics")
        assert status == 200
        assert 'pallas_link_handshakes_total{result="accepted"} 1.0' in text
        await end.say("ping 1", 1)
        await wait_until(lambda: end.sent == ["pong 1"])


async def taken(dial: Callable[[], Any]) -> float:
    began = time.monotonic()
    await dial()
    return time.monotonic() - began


@pytest.mark.parametrize("paused_before_start", [False, True])
async def test_ends_get_in_while_redis_stands_still_and_are_answered_afterwards(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path, *, paused_before_start: bool
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(valkey.resume)
        if paused_before_start:
            valkey.pause()
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, demo.app))
        valkey.pause()
        ends = [MiniEnd(worker.url, costume, f"90000{number}") for number, costume in enumerate(COSTUMES)]
        for end in ends:
            # The end itself gives up after two seconds.
            assert await taken(end.dial) < 2.0
            stack.push_async_callback(end.hang_up)
        for end in ends:
            await end.say("ping 1", 1)
        await wait_until(lambda: worker.meters.pending == 1)
        assert all(end.sent == [] for end in ends)
        valkey.resume()
        await wait_until(lambda: any(end.sent for end in ends), 10)
        assert sum(len(end.sent) for end in ends) == 1
        await wait_until(lambda: not worker.claims.unsettled)
