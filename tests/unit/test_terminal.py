"""What `status`, `bots`, `books` and `dead list` print: in two languages, straight, harmless, never a crash."""

from __future__ import annotations

import io
import json
import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pallas.errors import PallasError, RedisUnavailable, ReplyUnknown
from shard.blind_view import BlindView
from shard.endpoints import Endpoint, publish
from shard.facts import (
    books_from,
    books_json,
    bots_from,
    bots_json,
    dead_from,
    dead_json,
    shards_from,
    shards_json,
)
from shard.table import Cell, Ink, Tone, cut, padded, table, width
from shard.terminal import show
from shard.view import Books, BotReason, BotState, Counters, EndedBook, ShardState, WorkerBook
from shard.words import language_of, load_words, locale_of, terminal_words
from tests.support.printed import NOW, cluster, printed
from tests.support.valkey import free_port
from tests.web.cluster import Cluster, HandClock, books, bot, dead_row

UNBALANCED = Books(
    as_of=NOW,
    workers=(
        WorkerBook("0", 3, Counters(arrived=10, distinct=8, running=8)),
        WorkerBook("1", 4, Counters(arrived=5, distinct=5, outcomes={"handled": 5})),
    ),
    ended=EndedBook(distinct=13, handled=9, dropped={"overload": 1}, open=0),
    unaccounted=4,
)


async def test_status_begins_with_one_sentence_that_says_whether_all_is_well(tmp_path: Path) -> None:
    text, code = await printed("status", cluster(), tmp_path)
    assert text.splitlines()[0] == "8 of 8 accounts online; 2 workers live; books balance."
    assert code == 0


async def test_status_speaks_chinese_where_the_locale_does(tmp_path: Path) -> None:
    text, _ = await printed("status", cluster(), tmp_path, locale="zh_CN.UTF-8")
    assert text.splitlines()[0] == "8 个账号中 8 个在线；2 个工作进程存活；账目平衡。"


async def test_the_verdict_says_how_much_is_missing(tmp_path: Path) -> None:
    view = cluster()
    view.change("10003", state=BotState.UNKNOWN, reason=BotReason.SHARD_LAPSED)
    view.shard_rows[1] = replace(view.shard_rows[1], state=ShardState.LAPSED, lease_left_s=-20.0)
    view.the_books = UNBALANCED
    text, _ = await printed("status", view, tmp_path)
    assert text.splitlines()[0] == (
        "7 of 8 accounts online; 1 of 2 workers live; books do not balance: 5; "
        "4 messages that no live worker holds wait to be taken over or ended."
    )
    assert "pallas bots" in text
    view.the_books = replace(books(), unaccounted=1)
    text, _ = await printed("status", view, tmp_path)
    assert "books balance; 1 message that no live worker holds waits to be taken over or ended." in text


@pytest.mark.parametrize(
    "accounts, workers, verdict",
    [(0, 0, "no accounts yet; no worker live; books balance."), (1, 1, "1 of 1 account online; 1 worker live;")],
)
async def test_the_verdict_counts_as_people_do(accounts: int, workers: int, verdict: str, tmp_path: Path) -> None:
    view = cluster()
    view.bot_rows, view.shard_rows = view.bot_rows[:accounts], view.shard_rows[:workers]
    text, _ = await printed("status", view, tmp_path)
    assert text.startswith(verdict)


async def test_bots_says_of_each_account_why_it_is_as_it_is(tmp_path: Path) -> None:
    view = cluster()
    view.change("10005", state=BotState.OFFLINE, reason=BotReason.END_SAYS_OFFLINE, heartbeat_online=False)
    view.change("10006", last_sent_at=None, heartbeat_online=None)
    text, code = await printed("bots", view, tmp_path)
    first, _, head, worst, *others = text.splitlines()
    assert first == "7 of 8 accounts online; 2 workers live."
    assert head.split("  ")[0] == "ACCOUNT"
    assert worst.startswith("10005")
    assert "offline: connected, but the client says the account is offline" in worst
    assert "NapCat 4.9.1" in worst
    [silent] = [line for line in others if line.startswith("10006")]
    assert silent.split()[-2:] == ["—", "—"]
    assert code == 0


async def test_columns_are_straight_with_chinese_nicknames(tmp_path: Path) -> None:
    view = cluster()
    view.change("10001", nickname="阿柴机器人")
    view.change("10002", nickname="e\u0301 👩\u200d👧 名")
    for locale in ("en", "zh-CN"):
        text, _ = await printed("bots", view, tmp_path, locale=locale)
        _, _, _, *rows = text.splitlines()
        state = "online" if locale == "en" else "在线"
        assert {width(row.partition(f"  {state}")[0].rstrip()) <= 40 for row in rows} == {True}
        assert len({width(row[: row.index(f"  {state}")]) for row in rows}) == 1


@pytest.mark.parametrize("hostile", ["\x1b[2J\x1b]0;x\x07", "a\nb\r", "\u202egnp", "\ud800", "x" * 5000, "{0}%s{name}"])
async def test_a_nickname_cannot_touch_the_terminal(hostile: str, tmp_path: Path) -> None:
    view = cluster()
    view.change("10001", nickname=hostile, end=hostile, end_version=hostile)
    view.shard_rows[0] = replace(view.shard_rows[0], host=hostile, app=hostile, version=hostile)
    names = ("cause", "group_id", "shard_id", "bot_id", "handler")
    view.dead_rows = [dead_row(at=NOW, **dict.fromkeys(names, hostile))]
    for what in ("bots", "status", "books", "dead"):
        text, _ = await printed(what, view, tmp_path)
        assert {unicodedata.category(char) for char in text.replace("\n", "")} & {"Cc", "Cf", "Cs"} == set()
        assert max(map(len, text.splitlines())) < 400
        json.loads((await printed(what, view, tmp_path, as_json=True))[0])


async def test_without_accounts_it_says_where_to_point_a_protocol_end(tmp_path: Path) -> None:
    view = cluster()
    view.bot_rows = []
    text, _ = await printed("bots", view, tmp_path)
    assert "ws://127.0.0.1:8091/onebot/v11/ws" in text
    view.shard_rows = []
    text, _ = await printed("bots", view, tmp_path)
    assert "pallas up" in text


async def test_books_are_equations_with_numbers(tmp_path: Path) -> None:
    text, code = await printed("books", cluster(), tmp_path)
    assert "Balanced ✓" in text.splitlines()[0]
    assert "Since start: arrived 3040 = refused 15 + copies 2000 + ignored 100 + distinct 925  ✓" in text
    assert "Since ever: distinct 925 = handled 900 + yielded 0 + dropped 17 + dead 0 + open 8  ✓" in text
    assert "Dropped: error in the handler 17" in text
    assert code == 0


async def test_books_that_do_not_balance_say_where_and_what_to_do(tmp_path: Path) -> None:
    view = cluster()
    view.the_books = UNBALANCED
    text, code = await printed("books", view, tmp_path)
    assert "Do not balance: 5" in text.splitlines()[0]
    assert "✗ +2" in text
    assert "✗ +3" in text
    assert "The counts of worker 0, epoch 3 do not add up" in text
    assert "worker 1, epoch 4 do not" not in text
    assert "Held by no live worker: 4; another takes them over" in text
    assert text.count("→") == 2
    assert code == 1


async def test_books_show_what_each_worker_took_over_gave_back_and_has_in_hand(tmp_path: Path) -> None:
    text, _ = await printed("books", cluster(), tmp_path)
    assert "Held: distinct 300 + taken over 2 = ended 300 + given back 0 + in hand 2  ✓" in text
    assert "Held: distinct 925 + taken over 2 = ended 917 + given back 2 + in hand 8  ✓" in text
    assert "Given back: worker lost its lease 2" in text
    assert "Ended because nobody went on: no worker could answer it 1" in text
    assert "Standing by for 4 messages that other workers hold" in text


async def test_a_message_that_a_worker_lost_sight_of_shows_in_its_book(tmp_path: Path) -> None:
    view = cluster()
    worker = WorkerBook("0", 3, Counters(arrived=5, distinct=5, outcomes={"handled": 4}))
    view.the_books = replace(books(), workers=(worker,), ended=EndedBook(distinct=5, handled=5))
    text, code = await printed("books", view, tmp_path)
    assert "= ended 4 + given back 0 + in hand 0  ✗ +1" in text
    assert "The counts of worker 0, epoch 3 do not add up" in text
    assert code == 1


async def test_buckets_of_redis_that_cancel_out_are_still_off(tmp_path: Path) -> None:
    view = cluster()
    view.the_books = replace(books(), ended=replace(books().ended, off=4))
    text, code = await printed("books", view, tmp_path)
    assert "✗ ±4" in text
    assert "What Redis counted does not add up" in text
    assert code == 1


async def test_a_message_between_two_readings_is_no_imbalance(tmp_path: Path) -> None:
    class Settling(Cluster):
        async def books(self) -> Books:
            found = await super().books()
            return UNBALANCED if self.reads < 4 else found

    text, code = await printed("books", Settling(), tmp_path)
    assert "Balanced" in text
    assert code == 0


async def test_one_late_reply_is_asked_again(tmp_path: Path) -> None:
    class Late(Cluster):
        async def books(self) -> Books:
            found = await super().books()
            if self.reads == 1:
                raise ReplyUnknown("late")
            return found

    assert (await printed("books", Late(), tmp_path))[1] == 0


@pytest.mark.parametrize("what", ["status", "bots", "books", "dead"])
async def test_a_redis_that_is_away_is_an_answer(what: str, tmp_path: Path) -> None:
    view = cluster()
    view.broken = RedisUnavailable("cannot connect to redis://:hunter2hunter2@127.0.0.1:1/0")
    text, code = await printed(what, view, tmp_path)
    assert text.startswith("Cannot see the deployment: cannot connect")
    assert "pallas doctor" in text
    assert "hunter2" not in text
    assert code == 1
    text, code = await printed(what, view, tmp_path, as_json=True)
    assert json.loads(text)["error"]["code"] == "redis_unavailable"
    assert "hunter2" not in text
    assert code == 1


async def test_a_hub_that_does_not_answer_has_its_own_code(tmp_path: Path) -> None:
    view = cluster()
    view.broken = PallasError("the hub does not answer")
    text, _ = await printed("bots", view, tmp_path, as_json=True)
    assert json.loads(text)["error"] == {
        "code": "hub_unavailable",
        "message": "the hub does not answer",
        "hint": "`pallas doctor` tells what is wrong and what to do.",
    }


@pytest.mark.parametrize("locale, start", [("en", "Nothing runs on "), ("zh_CN.UTF-8", "")])
async def test_nothing_running_is_said_in_the_persons_language(locale: str, start: str, tmp_path: Path) -> None:
    text, code = await printed("status", BlindView("nothing runs"), tmp_path, locale=locale)
    assert text.startswith(f"{start}{tmp_path}")
    assert "pallas up" in text
    assert code == 1


async def test_json_has_the_field_names_of_the_hub(tmp_path: Path) -> None:
    view = cluster()
    view.dead_rows = [dead_row(at=NOW - number) for number in range(30)]
    text, _ = await printed("bots", view, tmp_path, as_json=True)
    assert json.loads(text) == {"as_of": NOW, **bots_json(view.bot_rows)}
    text, _ = await printed("books", view, tmp_path, as_json=True)
    assert json.loads(text) == books_json(view.the_books, view.dead_rows)
    assert len(json.loads(text)["dead_listed"]) == 20
    text, _ = await printed("dead", view, tmp_path, as_json=True)
    assert json.loads(text) == {"as_of": NOW, **dead_json(view.dead_rows)}
    text, _ = await printed("status", view, tmp_path, as_json=True)
    found = json.loads(text)
    assert found["counts"] == {"online": 8, "offline": 0, "unknown": 0}
    assert found["shards"] == json.loads(json.dumps(shards_json(view.shard_rows, "/onebot/v11/ws")["shards"]))
    assert found["processes"] == []
    assert found["books"]["balanced"] is True
    assert all(isinstance(row["shard_id"], str) for row in found["shards"])


def test_facts_come_back_as_they_were_sent() -> None:
    view = cluster()
    view.change("10001", last_sent_at=None, heartbeat_online=None, state=BotState.UNKNOWN)

    def sent(body: object) -> Any:
        return json.loads(json.dumps(body))

    assert sorted(bots_from(sent(bots_json(view.bot_rows))), key=lambda row: row.self_id) == view.bot_rows
    assert shards_from(sent(shards_json(view.shard_rows, "/x"))) == view.shard_rows
    assert books_from(sent(books_json(UNBALANCED))) == UNBALANCED
    assert books_from(sent(books_json(books()))) == books()
    dead = [dead_row(at=NOW), dead_row(at=NOW, reason="holder_lost", bot_id="", group_id="")]
    assert dead_from(sent(dead_json(dead))) == dead


async def test_colours_are_for_terminals_that_want_them(tmp_path: Path) -> None:
    assert "\x1b[" in (await printed("status", cluster(), tmp_path, terminal=True))[0]
    assert "\x1b[" not in (await printed("status", cluster(), tmp_path, terminal=True, plain=True))[0]
    assert "\x1b[" not in (await printed("status", cluster(), tmp_path))[0]
    assert "\x1b[" not in (await printed("status", cluster(), tmp_path, terminal=True, as_json=True))[0]


async def test_a_terminal_without_chinese_shows_escapes_instead_of_failing(tmp_path: Path) -> None:
    raw = io.BytesIO()
    page = io.TextIOWrapper(raw, encoding="ascii")
    code = await show("books", cluster(), tmp_path, HandClock(NOW), as_json=False, locale="zh_CN", stream=page)
    assert code == 0
    assert b"\\u8d26\\u76ee" in raw.getvalue()


@pytest.mark.parametrize("age_s, shown", [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (1e6, "11 d")])
async def test_ages_have_one_unit(age_s: float, shown: str, tmp_path: Path) -> None:
    view = cluster()
    view.bot_rows = [bot("10001", at=NOW, last_event_at=NOW - age_s, last_sent_at=NOW + 30)]
    text, _ = await printed("bots", view, tmp_path)
    assert re.search(rf"  {re.escape(shown)}  .*  0 s$", text.splitlines()[-1])


@pytest.mark.parametrize(
    "locale, language",
    [("zh_CN.UTF-8", "zh-CN"), ("zh-TW", "zh-CN"), ("zh", "zh-CN"), ("C.UTF-8", "en"), ("", "en"), ("zhuang", "en")],
)
def test_the_locale_chooses_the_language(locale: str, language: str) -> None:
    assert language_of(locale) == language
    assert terminal_words(locale).language == language


def test_the_first_locale_variable_that_is_set_counts() -> None:
    assert locale_of({"LANG": "zh_CN", "LC_MESSAGES": "", "LC_ALL": "C"}) == "C"
    assert locale_of({"LANG": "zh_CN", "LC_MESSAGES": "en_US"}) == "en_US"
    assert locale_of({"LANG": "zh_CN"}) == "zh_CN"
    assert locale_of({}) == ""


def test_both_languages_have_the_same_words_with_the_same_fields() -> None:
    def fields(words: dict[str, Any]) -> dict[str, list[str]]:
        return {key: sorted(re.findall(r"\{(\w+)\}", text)) for key, text in words.items()}

    english, chinese = (dict(terminal_words(locale).words) for locale in ("en", "zh_CN"))
    assert fields(english) == fields(chinese)
    pages = load_words("webui")
    assert set(english) & set(pages["en"].words) == set()


def test_cells_are_counted_as_a_terminal_does() -> None:
    assert [width(text) for text in ("ab", "阿柴", "e\u0301", "ｱ", "“", "…")] == [2, 4, 1, 1, 1, 1]
    assert padded("阿", 4) == "阿  "
    assert padded("阿", 4, right=True) == "  阿"
    assert cut("阿柴机器人", 6) == "阿柴…"
    assert cut("阿柴", 4) == "阿柴"
    lines = table(["A", "B"], [["阿", Cell("9", Tone.BAD)], ["abc", "10"]], Ink(colour=False), right={1})
    assert lines == ["A     B", "阿    9", "abc  10"]


async def test_processes_of_the_folder_are_shown_with_what_they_say(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    publish(tmp_path, Endpoint("hub", os.getpid(), url, url))
    publish(tmp_path, Endpoint("worker-0", 2**22 + 5, url, url))
    text, _ = await printed("status", cluster(), tmp_path)
    assert "does not answer" in text
    assert "worker-0" not in text
