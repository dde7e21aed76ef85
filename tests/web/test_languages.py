"""Both languages say everything, and a visitor gets the one they read."""

from __future__ import annotations

import re

import pytest

from pallas.model import Reason
from shard.view import BotReason, BotState
from shard.words import LANGUAGES
from tests.support.tree import ROOT
from tests.web.cluster import Cluster, hub, operator
from webui.language import load_catalogues, negotiate

CATALOGUES = load_catalogues()
PACKAGE = ROOT / "webui"


def test_catalogues_have_the_same_keys_and_the_same_fields() -> None:
    fields = {
        language: {key: sorted(re.findall(r"\{(\w+)\}", text)) for key, text in catalogue.words.items()}
        for language, catalogue in CATALOGUES.items()
    }
    assert fields["en"] == fields["zh-CN"]
    assert all(text.strip() for catalogue in CATALOGUES.values() for text in catalogue.words.values())


def test_every_state_and_reason_code_has_a_sentence() -> None:
    wanted = {f"state.{state}" for state in BotState} | {f"reason.bot.{reason}" for reason in BotReason}
    wanted |= {f"reason.{reason}" for reason in Reason}
    wanted |= {f"dead.what.{reason}" for reason in (Reason.SENT_UNKNOWN, Reason.HOLDER_LOST)}
    wanted |= {f"dead.cause.{cause}" for cause in ("holder_died", "holder_forgot", "given_back", "no_answer")}
    assert wanted - set(CATALOGUES["en"].words) == set()


def test_every_key_that_pages_and_scripts_name_exists() -> None:
    named: set[str] = set()
    for path in PACKAGE.glob("static/*.js"):
        named |= set(re.findall(r'(?:text|byReason)\("([\w.]+)"', path.read_text("utf-8")))
    for path in PACKAGE.glob("templates/*.html"):
        named |= set(re.findall(r't\("([\w.]+)"[,)]', path.read_text("utf-8")))
    assert len(named) > 20
    assert named - set(CATALOGUES["en"].words) == set()


def test_scripts_and_pages_hold_no_words_of_their_own() -> None:
    for path in [*PACKAGE.glob("static/*.js"), *PACKAGE.glob("templates/*.html")]:
        assert re.findall(r"[\u4e00-\u9fff]", path.read_text("utf-8")) == [], path
    for path in PACKAGE.glob("templates/*.html"):
        text = re.sub(r"\{%.*?%\}|\{\{.*?\}\}|<code>.*?</code>|<[^>]+>", "", path.read_text("utf-8"), flags=re.DOTALL)
        assert re.findall(r"[A-Za-z]{2,}", text) == [], path


def test_text_reaches_a_page_only_as_text() -> None:
    forbidden = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\|\s*safe|\bon\w+=")
    for path in [*PACKAGE.glob("static/*.js"), *PACKAGE.glob("templates/*.html")]:
        assert forbidden.findall(path.read_text("utf-8")) == [], path


@pytest.mark.parametrize(
    "header, language",
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"),
        ("zh-TW", "zh-CN"),
        ("en-GB,en;q=0.9,zh;q=0.8", "en"),
        ("fr,zh;q=0.5,en;q=0.4", "zh-CN"),
        ("fr-FR, fr", "en"),
        ("zh;q=0, en;q=0.1", "en"),
        ("zh;q=x", "en"),
        (";;;,=,q=", "en"),
        ("x" * 100_000, "en"),
    ],
)
def test_browser_preference_chooses_among_ours(header: str, language: str) -> None:
    assert negotiate(header) == language


async def test_chosen_language_is_remembered() -> None:
    async with operator(hub(Cluster())[0]) as client:
        assert '<html lang="en">' in (await client.get("/bots")).text
        assert '<html lang="zh-CN">' in (await client.get("/bots?lang=zh-CN")).text
        assert '<html lang="zh-CN">' in (await client.get("/bots")).text
        assert '<html lang="zh-CN">' in (await client.get("/bots?lang=xx%22%3E")).text


async def test_changing_the_language_of_a_sign_in_link_keeps_its_code() -> None:
    app, auth = hub(Cluster())
    code = auth.issue_link()
    async with operator(app) as client:
        assert f"?code={code}&amp;lang=zh-CN" in (await client.get(f"/signin?code={code}")).text


def test_languages_are_the_two_the_product_speaks() -> None:
    assert LANGUAGES == ("en", "zh-CN")
