"""What is told of a handler's error: where to look in the author's code, and never a word of a person."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from pallas.context import Context
from pallas.failure import describe

CANARY = "canary-2b7d51"
BOT = """
import asyncio
import json
TOKEN = "canary-2b7d51"

def own(text):
    return int(text)

def of_the_language(text):
    return json.loads(text)

def of_ours(text):
    from pallas.onebot.verdict import data_of
    from pallas.model import ActionReply
    return data_of(ActionReply("1", False, 100, None, text), None, "10001", "send_msg")

def of_a_package(text):
    import mylib
    return mylib.use(text)

def deep(text, left=100):
    return deep(text, left - 1) if left else own(text)

async def in_a_group(text):
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(own, text))

def raised_from(text):
    try:
        return own(text)
    except ValueError as error:
        raise RuntimeError(text, TOKEN) from error
"""


@pytest.fixture
def bot(tmp_path: Path) -> ModuleType:
    return module(tmp_path / "my_bot.py", BOT)


def module(file: Path, source: str) -> ModuleType:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def failed(bot: ModuleType, name: str) -> dict[str, object]:
    try:
        result = getattr(bot, name)(CANARY)
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    except Exception as error:
        own = error.__traceback__
        # This file's own frame goes: nothing of a worker stands there that is not ours.
        return describe(error.with_traceback(own.tb_next if own is not None else None))
    pytest.fail("nothing was raised")


def line_of(text: str) -> int:
    return BOT.splitlines().index(text) + 1


@pytest.mark.parametrize("name", ["own", "of_the_language", "of_ours", "deep", "in_a_group", "raised_from"])
def test_no_word_of_the_error_and_no_source_line_is_told(bot: ModuleType, name: str) -> None:
    assert CANARY not in json.dumps(failed(bot, name))


@pytest.mark.parametrize(
    "name, kind, line, function",
    [
        ("own", "ValueError", "    return int(text)", "own"),
        ("of_the_language", "JSONDecodeError", "    return json.loads(text)", "of_the_language"),
        (
            "of_ours",
            "ActionFailed",
            '    return data_of(ActionReply("1", False, 100, None, text), None, "10001", "send_msg")',
            "of_ours",
        ),
        ("deep", "ValueError", "    return int(text)", "own"),
        ("in_a_group", "ExceptionGroup of ValueError", "    return int(text)", "own"),
        ("raised_from", "RuntimeError", "        raise RuntimeError(text, TOKEN) from error", "raised_from"),
    ],
)
def test_the_place_is_the_innermost_line_of_the_authors_code(
    bot: ModuleType, name: str, kind: str, line: str, function: str
) -> None:
    told = failed(bot, name)
    assert told["error"] == kind
    assert told["where"] == f"{bot.__file__}:{line_of(line)} in {function}"


def test_a_bot_comes_before_the_packages_it_uses_and_an_installed_bot_before_ours(
    bot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = module(tmp_path / "site-packages" / "mylib.py", "import json\ndef use(text):\n    json.loads(text)\n")
    monkeypatch.setitem(sys.modules, "mylib", library)
    place = f"{bot.__file__}:{line_of('    return mylib.use(text)')} in of_a_package"
    assert failed(bot, "of_a_package")["where"] == place
    assert failed(library, "use")["where"] == f"{library.__file__}:3 in use"


def test_at_most_twelve_frames_are_told_the_innermost_last(bot: ModuleType) -> None:
    frames = failed(bot, "deep")["frames"]
    assert isinstance(frames, list)
    assert len(frames) == 12
    assert frames[-1] == f"{bot.__file__}:{line_of('    return int(text)')} own"


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert describe(ValueError(CANARY)) == {"error": "ValueError", "where": "unknown", "frames": []}


def test_an_error_of_ours_alone_has_the_place_where_it_arose() -> None:
    with pytest.raises(AttributeError) as raised:
        Context.text.fget(None)  # type: ignore[attr-defined]
    error = raised.value.with_traceback(raised.tb.tb_next)
    assert "context.py:" in str(describe(error)["where"])
