"""What the README and docs/ say is what the code does: settings, commands, codes, steps, metrics, first bot."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from pallas import cli
from pallas.app import App
from pallas.metrics import MeterCollector, Meters, exposition
from pallas.model import ActionReply, Reason
from pallas.onebot.ends import End
from pallas.onebot.handshake import Refusal
from pallas.onebot.verdict import is_unknown
from pallas.settings import describe
from pallas.settings_names import retired
from pallas.testing import TestBot
from shard.pipeline import Pipeline
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
    group = typer.main.get_group(cli.cli)
    options = {
        name: {flag for param in command.params for flag in param.opts} for name, command in group.commands.items()
    }
    wrong = [
        (page, command, option)
        for page, text in TEXTS.items()
        for command, rest in re.findall(r"\bpallas ([a-z]+)((?: [^\n`|;&]+)?)", text)
        if command in options
        for option in re.findall(r"(?<!\S)(--[a-z-]+)", rest)
        if option not in options[command]
    ]
    assert wrong == []


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/zh-CN/architecture.md"])
def test_steps_of_the_pipeline_stand_in_the_architecture_in_their_order(page: str) -> None:
    source = inspect.getsource(Pipeline.__init__)
    steps = [
        step
        for name in ("_message_door", "_way")
        for step in re.findall(r"self\.(_\w+)", re.findall(rf"self\.{name} = \((.*?)\)", source, re.DOTALL)[0])
    ]
    assert len(steps) == 8
    shown = re.findall(r"^ +(_[a-z_]+) {2,}\S", TEXTS[page], re.MULTILINE)
    assert shown == steps


def test_every_reason_code_and_refusal_is_explained() -> None:
    codes = set(re.findall(r"`([a-z0-9_]+)`", PROTOCOL))
    assert {reason.value for reason in Reason} - codes == set()
    assert {refusal.value for refusal in Refusal} - codes == set()


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


def test_newcomers_path_names_files_that_exist() -> None:
    path = re.findall(r"^\d\. \[`([^`]+)`\]\(([^)]+)\)", READMES[0].read_text("utf-8"), re.MULTILINE)
    assert [shown for shown, _ in path] == [target for _, target in path]
    assert len(path) == 6
    assert all((ROOT / target).is_file() for _, target in path)
