"""Loading a bot by its address: what is found, and what an operator reads when it is not."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import pallas
from pallas.errors import AppError
from pallas.loader import check_package, load

BOT = """
from pallas.app import App
app = App("my-bot")
@app.command("hello")
async def hello(ctx): ...
"""

numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    """A module name that no other test has imported."""
    return f"loaded_bot_{next(numbers)}"


@pytest.fixture(autouse=True)
def imports_restored() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for module in set(sys.modules) - modules:
        del sys.modules[module]


def write(folder: Path, name: str, source: str) -> Path:
    file = folder / f"{name}.py"
    file.write_text(source, encoding="utf-8")
    return file


def refused(spec: str, folder: Path) -> str:
    with pytest.raises(AppError) as caught:
        load(spec, folder=folder)
    return str(caught.value)


def test_a_bot_in_the_working_folder_is_found(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, BOT)
    app = load(f"{name}:app", folder=tmp_path)
    assert app.name == "my-bot"
    assert load(f"{name}:app", folder=tmp_path) is app
    assert sys.path.count(str(tmp_path)) == 1


def test_a_bot_in_a_package_is_found(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    write(tmp_path / name, "main", BOT)
    assert load(f"{name}.main:app", folder=tmp_path).name == "my-bot"


def test_the_demo_bot_is_found() -> None:
    assert load("pallas.demo:app").name == "pallas-demo"


@pytest.mark.parametrize(
    "spec, expected",
    [
        ("mybot", "try mybot:app"),
        ("mybot.py", "try mybot:app"),
        ("./bots/mybot.py:bot", "try bots.mybot:bot"),
        ("", "for example mybot:app"),
        (":app", "for example mybot:app"),
        ("mybot:", "for example mybot:app"),
        ("mybot:app:x", "for example mybot:app"),
        ("my-bot:app", "for example mybot:app"),
        (".mybot:app", "for example mybot:app"),
        ("shard:app", "shard is a package of Pallas Cluster; rename your module"),
        ("webui.bot:app", "webui is a package of Pallas Cluster"),
    ],
)
def test_an_address_that_is_none_is_refused_with_what_to_write(spec: str, expected: str, tmp_path: Path) -> None:
    assert expected in refused(spec, tmp_path)


def test_a_missing_module_is_reported_with_the_folder_that_was_searched(name: str, tmp_path: Path) -> None:
    message = refused(f"{name}:app", tmp_path)
    assert f"no module {name!r} in {tmp_path}" in message


def test_a_missing_submodule_is_reported_by_its_full_name(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert f"no module '{name}.main'" in refused(f"{name}.main:app", tmp_path)


def test_a_dependency_that_is_missing_is_not_taken_for_the_bot(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, name, "x = 1\nimport not_installed_anywhere\n")
    message = refused(f"{name}:app", tmp_path)
    assert "install 'not_installed_anywhere'" in message
    assert f"{file}:2 in <module>" in message


def test_an_error_in_the_module_shows_the_authors_lines_but_not_their_text(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, name, 'def connect(token):\n    raise KeyError("base_url")\n\nconnect("s3cret")\n')
    message = refused(f"{name}:app", tmp_path)
    assert "cannot be imported: KeyError: 'base_url'" in message
    assert f"{file}:4 in <module>\n  {file}:2 in connect" in message
    assert "s3cret" not in message
    assert "importlib" not in message
    assert "loader.py" not in message


def test_a_syntax_error_shows_its_line(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, name, "x = 1\ndef broken(:\n")
    message = refused(f"{name}:app", tmp_path)
    assert "SyntaxError" in message
    assert f"{file}:2" in message


def test_a_module_that_exits_does_not_take_the_worker_with_it(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, "raise SystemExit(3)\n")
    assert "SystemExit: 3" in refused(f"{name}:app", tmp_path)


def test_a_contradiction_in_the_module_is_shown_as_it_is(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, name, BOT + '@app.command("hello")\nasync def again(ctx): ...\n')
    message = refused(f"{name}:app", tmp_path)
    assert message.startswith("two handlers for 'hello'")
    assert f"{file}:4" in message
    assert f"{file}:6" in message


def test_a_missing_attribute_lists_the_bots_that_are_there(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, name, BOT + 'second = App("other")\n')
    message = refused(f"{name}:bot", tmp_path)
    assert f"{file} has no 'bot'; it has {name}:app, {name}:second" in message


def test_a_module_without_any_bot_says_how_to_make_one(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, "x = 1\n")
    assert 'write app = App("my-bot")' in refused(f"{name}:app", tmp_path)


def test_something_else_under_the_name_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, BOT + "def make(): return app\n")
    assert "that is a function and not an App; it has" in refused(f"{name}:make", tmp_path)


def test_a_bot_that_declares_nothing_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path, name, 'from pallas.app import App\napp = App("silent")\n')
    assert "declares no handler" in refused(f"{name}:app", tmp_path)


def test_our_own_package_is_accepted() -> None:
    check_package(pallas)


@pytest.mark.parametrize("file", ["/usr/lib/python3/site-packages/pallas/__init__.py", None])
def test_another_package_of_our_name_is_refused(file: str | None) -> None:
    other = ModuleType("pallas")
    other.__file__ = file
    with pytest.raises(AppError, match=r"another package named pallas.*virtual environment of its own"):
        check_package(other, search_path=[])


def test_the_other_distribution_over_the_same_folder_is_refused(tmp_path: Path) -> None:
    install_rival(tmp_path)
    (tmp_path / "pallas").symlink_to(Path(str(pallas.__file__)).parent, target_is_directory=True)
    with pytest.raises(AppError, match=r"pallas-core 4\.4\.5 is installed over the same folder"):
        check_package(pallas, search_path=[str(tmp_path)])


def test_the_other_distribution_elsewhere_does_no_harm(tmp_path: Path) -> None:
    install_rival(tmp_path)
    check_package(pallas, search_path=[str(tmp_path)])


def install_rival(folder: Path) -> None:
    info = folder / "pallas_core-4.4.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pallas-core\nVersion: 4.4.5\n", encoding="utf-8")
