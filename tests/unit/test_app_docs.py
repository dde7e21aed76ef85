"""The pages for bot authors: their code runs, and both languages show the same."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pallas.app import App
from pallas.testing import TestBot

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "writing-a-bot.md", DOCS / "zh-CN" / "writing-a-bot.md"]
SHOWN = pytest.mark.parametrize("page", PAGES, ids=["en", "zh-CN"])


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def run(block: str, page: Path) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "shown"}
    exec(compile(block, str(page), "exec"), names)
    return names


@pytest.fixture
def first_bot(page: Path) -> Iterator[None]:
    """The page's first block as the module `bot`, which its test block imports."""
    module = ModuleType("bot")
    module.__dict__.update(run(blocks(page)[0], page))
    sys.modules["bot"] = module
    yield
    del sys.modules["bot"]


@SHOWN
def test_every_block_of_the_page_declares_a_bot(page: Path) -> None:
    *bots, _ = blocks(page)
    assert len(bots) == 5
    for block in bots:
        assert isinstance(run(block, page)["app"], App)


@SHOWN
@pytest.mark.usefixtures("first_bot")
def test_the_test_that_the_page_shows_passes(page: Path) -> None:
    run(blocks(page)[-1], page)


@SHOWN
async def test_what_the_page_says_of_its_commands_is_so(page: Path) -> None:
    bot = TestBot(run(blocks(page)[1], page)["app"], accounts=["10001", "10002"])
    bot.answers("set_group_ban", None)
    (drunk,) = await bot.says("喝酒三杯")
    assert drunk.text.endswith("三杯")
    assert len(await bot.says("/ 签到")) == 1
    assert len(await bot.says("SIGN  in")) == 1
    assert await bot.says("hello") == []
    assert len(await bot.says("hello", group="")) == 1
    assert len(await bot.notice("group_increase")) == 1
    (mute,) = [handler.names[0] for handler in bot.app.handlers if handler.needs]
    await bot.says(f"{mute} 5 2", role="admin")
    assert bot.calls[-1].params == {"group_id": "1", "user_id": "5", "duration": 120}


def test_both_languages_have_the_same_headings_blocks_and_tables() -> None:
    english, chinese = (page.read_text(encoding="utf-8") for page in PAGES)
    for shape in (r"^## ", r"^```", r"^\| ", r"^- "):
        assert len(re.findall(shape, english, re.MULTILINE)) == len(re.findall(shape, chinese, re.MULTILINE))
