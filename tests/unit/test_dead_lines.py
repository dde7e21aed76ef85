"""How messages that ended as dead are told in a terminal: in the verdict, below the books, and as their own list."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from shard.table import width
from shard.view import EndedBook
from tests.support.printed import NOW, cluster, printed
from tests.web.cluster import books, dead_row


@pytest.mark.parametrize(
    "lost, maybe, english, chinese",
    [
        (0, 0, "", ""),
        (1, 0, "; 1 not answered: `pallas dead list`", "；1 条未回复：`pallas dead list`"),
        (0, 2, "; 2 maybe answered: `pallas dead list`", "；2 条可能已回复：`pallas dead list`"),
        (1, 2, "; 1 not answered, 2 maybe: `pallas dead list`", "；1 条未回复，2 条可能已回复：`pallas dead list`"),
    ],
)
async def test_the_verdict_says_how_many_messages_ended_as_dead(
    lost: int, maybe: int, english: str, chinese: str, tmp_path: Path
) -> None:
    view = cluster()
    view.dead_rows = [dead_row(at=NOW, reason="holder_lost") for _ in range(lost)]
    view.dead_rows += [dead_row(at=NOW) for _ in range(maybe)]
    text, _ = await printed("status", view, tmp_path)
    assert text.splitlines()[0] == f"8 of 8 accounts online; 2 workers live; books balance{english}."
    text, _ = await printed("status", view, tmp_path, locale="zh_CN.UTF-8")
    assert text.splitlines()[0] == f"8 个账号中 8 个在线；2 个工作进程存活；账目平衡{chinese}。"
    found = json.loads((await printed("status", view, tmp_path, as_json=True))[0])["books"]
    assert found["dead_kept_by"] == {
        reason: count for reason, count in (("holder_lost", lost), ("sent_unknown", maybe)) if count
    }


async def test_books_list_the_latest_of_the_dead_and_say_where_the_rest_is(tmp_path: Path) -> None:
    view = cluster()
    view.dead_rows = [dead_row(at=NOW - number, handler=f"h{number}") for number in range(12)]
    view.dead_rows[0] = dead_row(
        at=NOW, reason="holder_lost", cause="holder_died", group_id="", bot_id="", handler="", shard_id="1"
    )
    view.the_books = replace(books(), ended=EndedBook(distinct=925, handled=910, dead={"sent_unknown": 15}))
    text, code = await printed("books", view, tmp_path)
    title, _, first, second, *rest = text.partition("Messages that ended")[2].splitlines()
    assert title.endswith("the latest 10 of 12 kept; `pallas dead list` prints all")
    when, *columns = re.split(r" {2,}", first.strip())
    # As the books say their own time, so that nobody asks by which clock.
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d · 2 min", when)
    assert columns == ["not answered: its worker died", "private chat", "—", "—", "1"]
    assert re.split(r" {2,}", second.strip())[1:] == [
        *("maybe answered: the send was not confirmed", "700100200", "10001", "h1", "0")
    ]
    assert (len(rest), rest[-3].split()[-2], rest[-2]) == (10, "h9", "  3 more were counted and are no longer kept")
    assert rest[-1].startswith("→ Nothing of this is sent again by itself.")
    assert code == 0


@pytest.mark.parametrize(
    "locale, words", [("en", "maybe answered: the send was not"), ("zh_CN.UTF-8", "可能已回复：发送未获确认")]
)
async def test_the_list_of_the_dead_is_whole_in_both_languages(locale: str, words: str, tmp_path: Path) -> None:
    view = cluster()
    view.dead_rows = [dead_row(at=NOW - number) for number in range(300)]
    text, code = await printed("dead", view, tmp_path, locale=locale)
    assert (text.count(words), code) == (300, 0)
    assert len({width(line[: line.index("700100200")]) for line in text.splitlines() if words in line}) == 1
    view.dead_rows = []
    assert len((await printed("dead", view, tmp_path, locale=locale))[0].splitlines()) == 1


async def test_where_nobody_knows_when_a_message_was_said_no_other_time_stands_in_its_place(tmp_path: Path) -> None:
    view = cluster()
    view.dead_rows = [dead_row(at=NOW, said_at=None)]
    for locale in ("en", "zh-CN"):
        row = (await printed("dead", view, tmp_path, locale=locale))[0].splitlines()[3]
        assert re.split(r" {2,}", row)[0] == "—"
