"""What the README and docs/ say is what the code does: settings, commands, codes, steps, metrics, first bot."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from pallas import cli, keys
from pallas.app import App
from pallas.metrics import MeterCollector, Meters, exposition
from pallas.model import ActionReply, Reason
from pallas.onebot.ends import End
from pallas.onebot.handshake import Refusal
from pallas.onebot.verdict import is_unknown
from pallas.settings import describe
from pallas.settings_names import retired
from pallas.testing import TestBot
from shard import actions
from shard.conduct import Conduct, Fault
from shard.facts import counters_json, dead_json
from shard.pipeline import Pipeline
from shard.view import Counters, DeadRow
from tests.support.tree import ROOT, project_files

PAGES = [ROOT / path for path in project_files() if path.suffix == ".md"]
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}
PROTOCOL = TEXTS["docs/protocol.md"]
ENDS = {
    "NapCat": End.NAPCAT,
    "LLBot": End.LLONEBOT,
    "Lagrange": End.LAGRANGE,
    "go-cqhttp": End.GOCQ,
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def test_settings_page_is_what_the_code_declares() -> None:
    made = subprocess.run(
        [sys.executable, "scripts/settings_page.py"],
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr.decode()
    assert made.stdout.decode() == TEXTS["docs/settings.md"], "run: python scripts/settings_page.py > docs/settings.md"


def test_every_setting_that_a_page_names_exists() -> None:
    known = {info.env for info in describe()}
    named = {(page, name) for page, text in TEXTS.items() for name in re.findall(r"\bPALLAS_[A-Z_]*[A-Z]\b(?!_)", text)}
    unknown = {(page, name) for page, name in named if name not in known and retired(name) is None}
    assert {pair for pair in unknown if pair[1] != "PALLAS_TEST_BROWSER"} == set()


def test_every_option_that_a_page_gives_to_a_command_exists() -> None:
    options = options_of(typer.main.get_group(cli.cli))
    assert "dead list" in options
    wrong = [
        (page, command, option)
        for page, text in TEXTS.items()
        for words in re.findall(r"\bpallas ([a-z]+(?: [^\n`|;&]+)?)", text)
        for command in [next((name for name in options if f"{words} ".startswith(f"{name} ")), "")]
        if command
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", words)
        if option not in options[command]
    ]
    assert wrong == []


def test_every_command_that_a_page_names_within_a_group_exists() -> None:
    group = typer.main.get_group(cli.cli)
    groups = {name.split()[0]: set[str]() for name in options_of(group) if " " in name}
    for name, words in groups.items():
        words |= {each.split()[1] for each in options_of(group) if each.startswith(f"{name} ")}
    named = {
        (page, name, word)
        for page, text in TEXTS.items()
        for name, word in re.findall(rf"\bpallas ({'|'.join(groups)}) ([a-z-]+)", text)
    }
    assert {row for row in named if row[2] not in groups[row[1]]} == set()


def options_of(group: Any, before: str = "") -> dict[str, set[str]]:
    """The options of every command, under all its words: `bots`, `dead list` …"""
    found: dict[str, set[str]] = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= options_of(command, f"{before}{name} ")
        else:
            found[before + name] = {flag for param in command.params for flag in param.opts}
    return found


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/zh-CN/architecture.md"])
def test_steps_of_the_pipeline_stand_in_the_architecture_in_their_order(page: str) -> None:
    source = inspect.getsource(Pipeline.__init__)

    def steps_of(name: str) -> list[str]:
        (listed,) = re.findall(rf"self\.{name} = \((.*?)\)", source, re.DOTALL)
        return [
            step
            for spread, named in re.findall(r"(\*?)self\.(_\w+)", listed)
            for step in (steps_of(named) if spread else [named])
        ]

    steps = steps_of("_message_door") + steps_of("_way")
    assert len(steps) == 8
    assert steps[-len(steps_of("_lanes")) :] == steps_of("_lanes"), "a take-over goes the end of the way"
    shown = re.findall(r"^ +(_[a-z_]+) {2,}\S", TEXTS[page], re.MULTILINE)
    assert shown == steps


def test_every_reason_code_and_refusal_is_explained() -> None:
    codes = set(re.findall(r"`([a-z0-9_]+)`", PROTOCOL))
    assert {reason.value for reason in Reason} - codes == set()
    assert {refusal.value for refusal in Refusal} - codes == set()


def test_keys_of_the_protocol_are_those_that_are_written() -> None:
    row = re.compile(r"^\| `(\{p\}[^`]*)` \| (\w+) \|", re.MULTILINE)
    assert row.findall(PROTOCOL) == row.findall(str(keys.__doc__))


def test_scripts_of_the_protocol_are_those_that_there_are() -> None:
    scripts = sorted(path.stem for path in (ROOT / "pallas/redis/lua").glob("*.lua"))
    prefixes = {name.partition("_")[0] for name in scripts}
    shown = re.findall(rf"^\| `((?:{'|'.join(prefixes)})_\w+)` \|", PROTOCOL, re.MULTILINE)
    assert sorted(shown) == scripts


def test_fields_of_the_api_that_the_protocol_lists_are_those_of_the_answers() -> None:
    row = DeadRow(1.0, 0.5, "sent_unknown", "no_answer", "1", "0", 3, "2", "ping")
    answered = {*counters_json(Counters())}, {*dead_json([row])["dead"][0]}  # type: ignore[index]
    for about, fields in zip((r"Field of a worker's counters [^\n|]+", "Field"), answered, strict=True):
        (table,) = re.findall(rf"^\| {about} \| \|\n\|[-|]+\|\n((?:\|.*\n)+)", PROTOCOL, re.MULTILINE)
        assert {name for first in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in codes(first)} == fields


def test_what_is_said_of_an_end_is_explained_with_what_to_do() -> None:
    (table,) = re.findall(r"^\| Field of `conduct` \| \|\n\|[-|]+\|\n((?:\|.*\n)+)", PROTOCOL, re.MULTILINE)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(Conduct().as_dict())
    (row,) = re.findall(r"^\| `faults` \| (.*) \|$", table, re.MULTILINE)
    section = TEXTS["docs/operations.md"].partition("\n## An end is at fault\n")[2]
    advised = re.findall(r"^\| `(\w+)` \| [^|]+ \| [^|]+ \|$", section, re.MULTILINE)
    assert codes(row) == advised == [fault.value for fault in Fault]


def codes(text: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", text)


def test_pages_name_every_beginning_of_actions_that_only_ask() -> None:
    listed = "、".join(f"`{begins}…`" for begins in actions._QUERIES)
    for folder in ("docs", "docs/zh-CN"):
        for page in ("architecture.md", "writing-a-bot.md"):
            said = re.sub(r"\s+", "", TEXTS[f"{folder}/{page}"]).replace(",`", "、`")
            assert listed in said, (folder, page)


def test_every_way_to_be_listed_as_dead_is_explained() -> None:
    for package in ("pallas", "shard"):
        for file in (ROOT / package).glob("*.py"):
            for cause in re.findall(r'cause="(\w+)"', file.read_text("utf-8")):
                assert cause in codes(PROTOCOL), (file.name, cause)


def test_table_of_answers_says_unknown_exactly_where_the_code_does() -> None:
    rows = re.findall(
        r"^\| ([^|]+) \| (\d+)(?:, text (?:begins|contains) `([^`]+)`)? \| unknown \|$", PROTOCOL, re.MULTILINE
    )
    assert {name for name, _, _ in rows} == ENDS.keys()
    for name, code, words in rows:
        reply = ActionReply(None, ok=False, retcode=int(code), data=None, message=f"{words} and more" if words else "")
        told_by = {end for end in End if is_unknown(reply, end)}
        assert told_by == {ENDS[name], End.UNKNOWN}, name


def test_every_metric_that_a_page_names_is_shown() -> None:
    shown = set(re.findall(r"^# TYPE (\w+)", exposition(MeterCollector(Meters())).decode(), re.MULTILINE))
    named = {name for text in TEXTS.values() for name in re.findall(r"\bpallas_[a-z]+_[a-z_]*[a-z]\b", text)}
    named -= {"pallas_core", "pallas_cluster", "pallas_data"}
    assert {name for name in named if name not in shown} == set()


def test_api_paths_that_a_page_names_are_routes_of_the_hub() -> None:
    routes = {
        path
        for file in (ROOT / "webui").glob("*.py")
        for path in re.findall(r"@router\.get\(\"(/api/v1/\w+)\"", file.read_text("utf-8"))
    }
    named = {path for text in TEXTS.values() for path in re.findall(r"/api/v1/\w+", text)}
    assert routes
    assert named == routes


@pytest.mark.parametrize("readme", READMES, ids=["en", "zh-CN"])
async def test_bot_of_the_readme_answers_its_command(readme: Any) -> None:
    (source,) = blocks(readme.read_text("utf-8"), "python")
    names: dict[str, Any] = {"__name__": "mybot"}
    exec(compile(source, str(readme), "exec"), names)
    app = names["app"]
    assert isinstance(app, App)
    (command,) = app.handlers[0].names
    (reply,) = await TestBot(app).says(f"{command} Ann")
    assert reply.text.endswith("Ann")
    assert len(await TestBot(app).says(command)) == 1


def test_both_pages_of_the_architecture_have_the_same_shape() -> None:
    english, chinese = (TEXTS[page] for page in ("docs/architecture.md", "docs/zh-CN/architecture.md"))
    for shape in (r"^## ", r"^```", r"^\| ", r"^- "):
        assert len(re.findall(shape, english, re.MULTILINE)) == len(re.findall(shape, chinese, re.MULTILINE)), shape


def test_both_readmes_have_the_same_shape() -> None:
    english, chinese = (readme.read_text("utf-8") for readme in READMES)
    for shape in (r"^## ", r"^```\w+", r"^\| ", r"^- ", r"^\d\. ", r"\]\((?!docs/)[^)]+\)"):
        assert len(re.findall(shape, english, re.MULTILINE)) == len(re.findall(shape, chinese, re.MULTILINE)), shape
    assert blocks(english, "console") == blocks(chinese, "console")


def test_every_promise_of_the_readme_links_to_its_test() -> None:
    for readme in READMES:
        rows = re.findall(r"^\| [^|]+ \| (.+) \|$", readme.read_text("utf-8"), re.MULTILINE)
        promises = [row for row in rows if "(tests/" in row]
        assert len(promises) >= 8
        for target in re.findall(r"\((tests/[^)]+)\)", "\n".join(promises)):
            assert (ROOT / target).is_file(), target


def test_every_promise_of_the_guarantees_links_to_its_test() -> None:
    text = TEXTS["docs/guarantees.md"]
    promises = re.findall(r"^\| (P\d|\d+) \| (.+) \|$", text, re.MULTILINE)
    assert [name for name, _ in promises if name.startswith("P")] == [f"P{number}" for number in range(1, 7)]
    assert [name for name, row in promises if "](../tests/" not in row] == []


def test_newcomers_path_names_files_that_exist() -> None:
    path = re.findall(r"^\d\. \[`([^`]+)`\]\(([^)]+)\)", READMES[0].read_text("utf-8"), re.MULTILINE)
    assert [shown for shown, _ in path] == [target for _, target in path]
    assert len(path) == 6
    assert all((ROOT / target).is_file() for _, target in path)
