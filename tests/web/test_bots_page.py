"""The page of the accounts in a real browser: sign-in, rows that change in place, hostile names, both languages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from itertools import product

import pytest
from playwright.async_api import Browser, Page, expect

from pallas.clock import SystemClock
from pallas.errors import RedisUnavailable
from shard.view import BotReason, BotState, Counters, EndedBook, WorkerBook
from tests.support.browser import chromium
from tests.web.cluster import Cluster, books, bot, dead_row, hub, served, shard
from webui.auth import Auth

LIVE_MS = 8000
HOSTILE = (
    "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\u202e\u2066" + "长" * 10_000
)


@dataclass(slots=True)
class Stage:
    """A served hub over a cluster of four accounts, and a browser that has not signed in."""

    cluster: Cluster
    auth: Auth
    url: str
    browser: Browser

    def link(self) -> str:
        return f"{self.url}/signin?code={self.auth.issue_link()}"

    async def page(self, *, language: str = "en-GB", width: int = 1280, scheme: str = "light") -> Page:
        """A new visitor's page; what its scripts complain about is an error of the test."""
        context = await self.browser.new_context(
            locale=language,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        return await context.new_page()

    async def signed_in(self, *, language: str = "en-GB", width: int = 1280, scheme: str = "light") -> Page:
        page = await self.page(language=language, width=width, scheme=scheme)
        await page.goto(self.link())
        await page.wait_for_url("**/bots")
        return page


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    cluster = Cluster()
    fill(cluster)
    app, auth = hub(cluster, token="")
    async with served(app) as url, chromium() as browser:
        yield Stage(cluster, auth, url, browser)


def fill(cluster: Cluster) -> None:
    """Four accounts of four implementations on two shards."""
    now = SystemClock().wall_s()
    cluster.shard_rows = [shard("0", at=now), shard("1", at=now)]
    cluster.bot_rows = [
        bot("9007199254740993", at=now, nickname="阿柴"),
        bot("10002", at=now, nickname="", shard_id="1", end="llonebot", end_version="5.2.0", heartbeat_online=None),
        bot("10003", at=now, nickname="Lag", end="lagrange", end_version="0.0.3", links=2, last_sent_at=None),
        bot("10004", at=now, nickname=HOSTILE, shard_id="1", end="gocq", end_version="v1.2.0"),
    ]
    cluster.the_books = books(now)


async def test_opening_the_link_signs_in_and_shows_the_accounts(stage: Stage) -> None:
    page = await stage.page()
    await page.goto(f"{stage.url}/bots")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await expect(page.get_by_text("pallas hub --new-link")).to_be_visible()
    await page.goto(stage.link())
    await page.wait_for_url("**/bots")
    await expect(page.locator("#rows tr")).to_have_count(4)
    await expect(page.locator("#counts")).to_have_text("4 online · 0 offline · 0 unknown")
    await expect(page.locator("#rows")).to_contain_text("9007199254740993")
    await expect(page.locator("#books")).to_contain_text("Balanced")
    await expect(page.locator("#books-arrived")).to_have_text(
        "Since start: arrived 3,040 = refused 15 + copies 2,000 + ignored 100 + distinct 925"
    )


async def test_row_of_an_account_that_goes_offline_changes_without_reload(stage: Stage) -> None:
    page = await stage.signed_in()
    row = page.locator("#rows tr", has_text="10002")
    await expect(row).to_contain_text("online")
    await page.evaluate("window.notReloaded = true")
    stage.cluster.change("10002", state=BotState.OFFLINE, reason=BotReason.LINK_CLOSED, links=0)
    await expect(row).to_contain_text("offline", timeout=LIVE_MS)
    await expect(row).to_contain_text("its connection closed")
    await expect(page.locator("#counts")).to_have_text("3 online · 1 offline · 0 unknown")
    await expect(page.locator("#rows tr").first).to_contain_text("10002")
    stage.cluster.bot_rows = [row for row in stage.cluster.bot_rows if row.self_id != "10003"]
    await expect(page.locator("#rows tr")).to_have_count(3, timeout=LIVE_MS)
    assert await page.evaluate("window.notReloaded") is True


async def test_rows_do_not_move_under_the_pointer(stage: Stage) -> None:
    page = await stage.signed_in()
    first = page.locator("#rows tr").first
    await expect(first).to_contain_text("10002")
    await first.hover()
    stage.cluster.change("9007199254740993", state=BotState.OFFLINE, reason=BotReason.LINK_CLOSED)
    await expect(page.locator("#rows .state-offline")).to_have_count(1, timeout=LIVE_MS)
    await expect(first).to_contain_text("10002")
    await page.mouse.move(5, 5)
    await expect(first).to_contain_text("9007199254740993", timeout=LIVE_MS)


async def test_hostile_nickname_is_text_and_stays_in_its_cell(stage: Stage) -> None:
    page = await stage.page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    await page.goto(stage.link())
    name = page.locator("#rows tr", has_text="10004").locator(".nickname")
    await expect(name).to_contain_text("<img src=x onerror=")
    assert len(await name.inner_text()) <= 64
    assert await page.locator("main img, main script").count() == 0
    assert await page.title() == "Bots · Pallas Cluster"
    assert await name.evaluate("cell => cell.scrollWidth <= cell.clientWidth && cell.clientHeight < 200")
    assert complaints == []


async def test_lost_cluster_is_a_banner_over_old_rows_that_heals(stage: Stage) -> None:
    page = await stage.signed_in()
    await expect(page.locator("#rows tr")).to_have_count(4)
    stage.cluster.broken = RedisUnavailable("gone")
    banner = page.locator("#banner")
    await expect(banner).to_contain_text("Cannot see the cluster since", timeout=LIVE_MS)
    await expect(page.locator("#bots.dimmed, #books.dimmed")).to_have_count(2)
    await page.reload()
    await expect(banner).to_contain_text("What is shown below is from")
    await expect(page.locator("#rows tr")).to_have_count(4)
    stage.cluster.broken = None
    await expect(banner).to_be_hidden(timeout=LIVE_MS)
    await expect(page.locator(".dimmed")).to_have_count(0)


async def test_empty_fleet_says_what_to_connect_where(stage: Stage) -> None:
    stage.cluster.bot_rows = []
    page = await stage.signed_in()
    empty = page.locator("#empty")
    await expect(empty).to_contain_text("ws://127.0.0.1:8090/onebot/v11/ws")
    await expect(empty).to_contain_text("ws://127.0.0.1:8091/onebot/v11/ws")
    stage.cluster.shard_rows = []
    await expect(empty).to_contain_text("pallas up --workers 2", timeout=LIVE_MS)
    fill(stage.cluster)
    await expect(page.locator("#rows tr")).to_have_count(4, timeout=LIVE_MS)
    await expect(empty).to_be_hidden()


async def test_books_that_do_not_balance_are_an_alarm(stage: Stage) -> None:
    stage.cluster.the_books = type(stage.cluster.the_books)(
        as_of=SystemClock().wall_s(),
        workers=(WorkerBook("0", 1, Counters(arrived=9, refused={"bad_id": 2}, distinct=4, running=4)),),
        ended=EndedBook(distinct=4, handled=4),
        unaccounted=12,
    )
    page = await stage.signed_in()
    card = page.locator("#books")
    await expect(card.locator(".badge.bad")).to_contain_text("Do not balance: 3")
    await expect(card).to_contain_text("Refused: unusable id 2")
    await expect(card).to_contain_text("Held by no live worker: 12")


async def test_messages_that_may_have_been_answered_are_named_and_listed(stage: Stage) -> None:
    now = SystemClock().wall_s()
    page = await stage.signed_in()
    doubt = page.locator("#books-doubt")
    await expect(page.locator("#books")).to_be_visible()
    await expect(doubt).to_be_hidden()
    stage.cluster.the_books = replace(
        books(now), ended=EndedBook(distinct=925, handled=920, dead={"sent_unknown": 2, "holder_lost": 3})
    )
    stage.cluster.dead_rows = [
        dead_row(at=now),
        dead_row(at=now, group_id="", bot_id="10002", handler=HOSTILE[:64]),
        *(dead_row(at=now - 60, reason="holder_lost", cause="holder_died", bot_id="", handler="") for _ in range(300)),
    ]
    await expect(doubt).to_contain_text("2 messages may or may not have been answered.", timeout=LIVE_MS)
    await expect(doubt).to_contain_text("300 messages were not answered.")
    await doubt.get_by_role("link").click()
    await page.wait_for_url("**/dead")
    await expect(page.locator("#rows tr")).to_have_count(200)
    await expect(page.locator("#counts")).to_have_text("the latest 200 of 302 kept")
    first, second, third = (page.locator("#rows tr").nth(number) for number in range(3))
    await expect(first).to_contain_text("maybe answered")
    await expect(first).to_contain_text("the send was not confirmed")
    await expect(second).to_contain_text("private chat")
    await expect(second).to_contain_text("<img src=x onerror=")
    await expect(third).to_contain_text("not answered")
    assert await page.locator("main img, main script").count() == 0
    stage.cluster.dead_rows = []
    await expect(page.locator("#empty")).to_be_visible(timeout=LIVE_MS)
    stage.cluster.broken = RedisUnavailable("gone")
    await expect(page.locator("#banner")).to_contain_text("Cannot see the cluster since", timeout=LIVE_MS)


async def test_where_nobody_knows_when_a_message_was_said_the_page_shows_no_time(stage: Stage) -> None:
    stage.cluster.dead_rows = [dead_row(at=SystemClock().wall_s(), said_at=None)]
    page = await stage.signed_in()
    await page.goto(f"{stage.url}/dead")
    await expect(page.locator("#rows td").first).to_have_text("—")
    await expect(page.locator("#rows time")).to_have_count(0)


async def test_what_an_account_did_before_it_connected_is_not_called_never(stage: Stage) -> None:
    stage.cluster.change("10003", last_event_at=None, last_sent_at=None)
    stage.cluster.change(
        "10002",
        state=BotState.OFFLINE,
        reason=BotReason.LINK_CLOSED,
        connected_at=None,
        last_event_at=None,
        last_sent_at=None,
    )
    page = await stage.signed_in()
    for account, words in (("10003", "not since it connected"), ("10002", "not known")):
        cells = page.locator("#rows tr").filter(has_text=account).locator("td")
        await expect(cells.nth(3)).to_have_text(words)
        await expect(cells.nth(4)).to_have_text(words)


async def test_page_of_the_dead_fits_in_both_languages_and_widths(stage: Stage) -> None:
    stage.cluster.dead_rows = [dead_row(at=SystemClock().wall_s(), handler=HOSTILE[:64], group_id="9" * 20)]
    for language, width in product(("en-GB", "zh-CN"), (390, 820, 1280)):
        page = await stage.signed_in(language=language, width=width)
        await page.goto(f"{stage.url}/dead")
        await expect(page.locator("#rows tr")).to_have_count(1)
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert await page.evaluate(fits), (language, width)
        await page.context.close()


async def test_page_fits_in_both_languages_themes_and_widths(stage: Stage) -> None:
    stage.cluster.change("10002", state=BotState.OFFLINE, reason=BotReason.LINK_CLOSED, links=0)
    stage.cluster.change("10003", state=BotState.UNKNOWN, reason=BotReason.PRESENCE_STALE)
    headings = {"en-GB": "Bots", "zh-CN": "机器人"}
    grounds = {"light": "rgb(244, 245, 243)", "dark": "rgb(19, 23, 21)"}
    for language, width, scheme in product(headings, (390, 820, 1280), grounds):
        page = await stage.signed_in(language=language, width=width, scheme=scheme)
        await expect(page.locator("#rows tr")).to_have_count(4)
        await expect(page.get_by_role("heading", name=headings[language], exact=True)).to_be_visible()
        await expect(page.locator("#books")).to_be_visible()
        await expect(page.locator("body")).to_have_css("background-color", grounds[scheme])
        fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert await page.evaluate(fits), (language, width, scheme)
        await page.context.close()


async def test_language_is_switched_on_the_page_and_kept(stage: Stage) -> None:
    page = await stage.signed_in()
    await page.get_by_role("link", name="中文").click()
    await expect(page.locator("#counts")).to_have_text("在线 4 · 离线 0 · 未知 0")
    await page.goto(f"{stage.url}/bots")
    await expect(page.locator("#counts")).to_have_text("在线 4 · 离线 0 · 未知 0")


async def test_ended_session_leads_to_the_sign_in_page(stage: Stage) -> None:
    page = await stage.signed_in()
    await expect(page.locator("#rows tr")).to_have_count(4)
    await page.context.clear_cookies()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=LIVE_MS)
