"""What must hold of the project's own files, whatever they say."""

from __future__ import annotations

import importlib
import re
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
from hatchling.builders.wheel import WheelBuilder

from pallas.version import VERSION
from tests.support.tree import PACKAGES, ROOT, exported_by, imports_of, project_files, sleeps_in, text_of

FILES = project_files()
PYTHON = [path for path in FILES if path.suffix == ".py"]
LUA = [path for path in FILES if path.suffix == ".lua"]
DOCS = [path for path in FILES if path.suffix == ".md"]
LONGEST_MODULE = 400
# Modules that may be longer, each with its reason; the list is there to shrink.
LONGER: dict[str, str] = {}
ASSETS = {".lua", ".html", ".css", ".js", ".json", ".svg"}
WHEEL_EXTRA = "py.typed"


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads(text_of(Path("pyproject.toml")))


@pytest.fixture(scope="module")
def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+)(?: [a-z-]+)*:(?!=)", text_of(Path("Makefile")), re.MULTILINE))


@pytest.fixture(scope="module")
def pallas_commands() -> set[str]:
    cli = importlib.import_module("pallas.cli")
    application = next(value for value in vars(cli).values() if isinstance(value, typer.Typer))
    return set(typer.main.get_group(application).commands)


def test_no_lock_file_is_kept() -> None:
    locks = {"uv.lock", "poetry.lock", "Pipfile.lock", "pdm.lock", "pylock.toml", "package-lock.json", "yarn.lock"}
    assert [path for path in FILES if path.name in locks] == []


def test_no_file_names_a_registry_host_or_a_folder_of_the_machine_it_was_written_on() -> None:
    # In two parts each, so that this file does not name them.
    banned = [
        *("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "deb.debian" + ".org"),
        *("/work" + "/main", "/work" + "/shared", "/tmp" + "/v/", "/opt" + "/wheels", "/opt" + "/pypi"),
    ]
    found = [(str(path), word) for path in FILES for word in banned if word in text_of(path)]
    assert found == []


def test_licence_is_the_apache_one_and_declared(project: dict[str, Any]) -> None:
    licence = text_of(Path("LICENSE"))
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert project["project"]["license"] == "Apache-2.0"
    assert {"LICENSE", "NOTICE"} <= set(project["project"]["license-files"])


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_readme_names_the_two_commands_and_only_targets_that_exist(readme: str, make_targets: set[str]) -> None:
    named = _make_words(text_of(Path(readme)))
    assert {"demo", "test"} <= named
    assert named <= make_targets


def test_docs_name_only_make_targets_that_exist(make_targets: set[str]) -> None:
    unknown = {str(path): sorted(_make_words(text_of(path)) - make_targets) for path in DOCS}
    assert {path: words for path, words in unknown.items() if words} == {}


def test_docs_name_only_pallas_commands_that_exist(pallas_commands: set[str]) -> None:
    unknown = {str(path): sorted(_pallas_words(text_of(path)) - pallas_commands) for path in DOCS}
    assert {path: words for path, words in unknown.items() if words} == {}


def test_docs_link_only_to_files_that_exist() -> None:
    broken = [
        (str(path), target)
        for path in DOCS
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)", text_of(path))
        if not (ROOT / path.parent / target).exists()
    ]
    assert broken == []


def test_every_script_states_its_promise_on_its_first_line() -> None:
    assert LUA
    # A promise is a sentence: "-- Gives … .", not a file name or a rule of dashes.
    promise = re.compile(r"-- [A-Z]\w+ .{10,}[.:,;]$")
    wrong = [str(path) for path in LUA if not promise.match(text_of(path).splitlines()[0])]
    assert wrong == []


def test_only_the_waiting_helper_sleeps() -> None:
    sleeping = [
        f"{path}:{line}"
        for path in PYTHON
        if path.parts[0] == "tests" and path != Path("tests/support/waiting.py")
        for line in sleeps_in(path)
    ]
    assert sleeping == [], "use tests.support.waiting.wait_until, or an asyncio.Event that is never set"


def test_modules_stay_short_enough_to_hold_one_noun() -> None:
    lengths = {str(path): len(text_of(path).splitlines()) for path in PYTHON if path.parts[0] in PACKAGES}
    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_MODULE and path not in LONGER} == {}
    assert [path for path in LONGER if lengths.get(path, 0) <= LONGEST_MODULE] == []


def test_modules_say_what_they_are() -> None:
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
    assert [str(path) for path in PYTHON if path.stem in vague] == []
    starts = {str(path): text_of(path).lstrip()[:3] for path in PYTHON}
    assert [path for path, start in starts.items() if start != '"""'] == []


@pytest.mark.parametrize(
    "path",
    [path for path in PYTHON if path.name == "__init__.py" and path.parts[0] in PACKAGES],
    ids=lambda path: ".".join(path.parent.parts),
)
def test_package_exports_exactly_what_others_import_from_it(path: Path) -> None:
    package = ".".join(path.parent.parts)
    exported = set(exported_by(path) or [])
    module = importlib.import_module(package)
    assert [name for name in exported if not hasattr(module, name)] == []
    folder = path.parent
    outside = [
        other for other in PYTHON if folder not in other.parents and other.parts[0] in {*PACKAGES, "bench", "tests"}
    ]
    used = {name for other in outside for source, name in imports_of(other) if source == package}
    documented = {name for doc in DOCS for name in _documented(package, text_of(doc))}
    modules = {other.stem for other in PYTHON if other.parent == folder} | {
        other.parent.name for other in PYTHON if other.parent.parent == folder
    }
    assert exported - used - documented == set(), "exported, but nobody outside the package imports it"
    assert (used | documented) - modules - exported == set(), "imported by others, but not in __all__"


def test_wheel_holds_every_file_the_product_needs_and_nothing_else(tmp_path: Path) -> None:
    wheel = next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    members = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    ours = {path for path in members if ".dist-info" not in path.parts[0]}
    wanted = {
        path
        for path in FILES
        if path.parts[0] in PACKAGES and (path.suffix in {".py", *ASSETS} or path.name == WHEEL_EXTRA)
    }
    assert wanted - ours == set()
    assert {path.parts[0] for path in ours} == set(PACKAGES)
    assert {Path(package, WHEEL_EXTRA) for package in PACKAGES} <= ours
    metadata = zipfile.ZipFile(wheel).read(f"pallas_cluster-{VERSION}.dist-info/METADATA")
    assert b"License-Expression: Apache-2.0" in metadata
    entry = zipfile.ZipFile(wheel).read(f"pallas_cluster-{VERSION}.dist-info/entry_points.txt")
    assert b"pallas = pallas.cli:main" in entry


def _make_words(text: str) -> set[str]:
    """`make X` inside code: prose may "make sure"."""
    return {word for code in _code(text) for word in re.findall(r"\bmake ((?!PYTHON)[a-z][a-z-]*)\b", code)}


def _pallas_words(text: str) -> set[str]:
    """`pallas X` at the start of a command inside code."""
    return {
        word
        for code in _code(text)
        for word in re.findall(r"(?:^|[$&;|] *)pallas ([a-z][a-z-]*)\b", code, re.MULTILINE)
    }


def _code(text: str) -> list[str]:
    """Fenced blocks and `inline` code."""
    fenced = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```[a-z]*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return fenced + re.findall(r"`([^`\n]+)`", rest)


def _documented(package: str, text: str) -> set[str]:
    """Names that documented code imports from the package."""
    pattern = rf"^\s*from {re.escape(package)} import (?:\(([^)]*)\)|([\w, ]+)$)"
    found = re.findall(pattern, "\n".join(_code(text)), re.MULTILINE)
    return {name.strip() for listed in found for name in "".join(listed).split(",") if name.strip()}
