"""The script loader: headers become locals, calls are checked against them, and every file keeps to the form."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files

import pytest

from pallas.redis.scripts import Script, script

TEXT = """-- Promises something.
-- KEYS: first (HASH), second (STRING)
-- ARGV: token, life_ms
-- Returns 1.

return redis.call('HGET', first, token)
"""
LUA = sorted(path.name.removesuffix(".lua") for path in (files("pallas.redis") / "lua").iterdir())


def test_names_of_the_header_become_locals_on_the_first_line() -> None:
    made = Script("thing_do", TEXT)
    assert made.source.startswith(
        "local first = KEYS[1] local second = KEYS[2] local token = ARGV[1] local life_ms = ARGV[2] -- Promises"
    )
    # So that a line number in the server's error is the file's own.
    assert made.source.count("\n") == TEXT.count("\n")


def test_the_sha_is_that_of_the_source_with_its_locals() -> None:
    made = Script("thing_do", TEXT)
    assert made.sha == hashlib.sha1(made.source.encode()).hexdigest()


def test_a_call_by_place_carries_sha_number_of_keys_and_values() -> None:
    made = Script("thing_do", TEXT)
    assert made.command("k1", "k2", b"t", 5) == ("EVALSHA", made.sha, 2, "k1", "k2", b"t", 5)


def test_a_call_by_name_is_the_same_call() -> None:
    made = Script("thing_do", TEXT)
    named = made.named(life_ms=5, second="k2", token=b"t", first="k1")
    assert named == made.command("k1", "k2", b"t", 5)


@pytest.mark.parametrize("values", [(), ("k1", "k2", b"t"), ("k1", "k2", b"t", 5, 6)])
def test_a_wrong_number_of_values_is_refused(values: tuple[str, ...]) -> None:
    with pytest.raises(TypeError, match=f"takes 4 values, got {len(values)}"):
        Script("thing_do", TEXT).command(*values)


@pytest.mark.parametrize(
    "values",
    [
        {"first": "k", "second": "k", "token": "t"},
        {"first": "k", "second": "k", "token": "t", "life_ms": 1, "more": 1},
        {"first": "k", "second": "k", "tokken": "t", "life_ms": 1},
    ],
)
def test_a_missing_or_unknown_name_is_refused(values: dict[str, str | int]) -> None:
    with pytest.raises(TypeError, match="takes first, second, token, life_ms; got "):
        Script("thing_do", TEXT).named(**values)


def test_the_same_call_can_be_made_with_its_source() -> None:
    made = Script("thing_do", TEXT)
    assert made.with_source(made.command("k1", "k2", b"t", 5)) == ("EVAL", made.source, 2, "k1", "k2", b"t", 5)


@pytest.mark.parametrize("word", ["KEYS", "ARGV"])
def test_a_file_without_its_header_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"thing_do.lua has no `-- {word}:` line"):
        Script("thing_do", TEXT.replace(f"-- {word}:", f"-- {word.lower()}:"))


ROWS = """-- Promises something for each row.
-- KEYS: home (HASH), books (HASH) …
-- ARGV: token …
-- Returns one answer for each.

return #KEYS
"""


def test_a_script_of_rows_takes_several_and_walks_them_itself() -> None:
    made = Script("thing_do", ROWS)
    assert made.source == ROWS, "which row would a local be of?"
    assert made.rows(["h1", "b1", "h2", "b2"], [b"t1", b"t2"]) == (
        *("EVALSHA", made.sha, 4, "h1", "b1", "h2", "b2"),
        *(b"t1", b"t2"),
    )
    assert made.command("h1", "b1", b"t1") == made.rows(["h1", "b1"], [b"t1"])


@pytest.mark.parametrize("keys", [["h1"], ["h1", "b1", "h2"], ["h1", "b1"]])
def test_what_is_no_whole_row_is_refused(keys: list[str]) -> None:
    with pytest.raises(TypeError, match=f"{len(keys)} keys and 2 arguments are no rows"):
        Script("thing_do", ROWS).rows(keys, [b"t1", b"t2"])


def test_a_script_is_read_once() -> None:
    assert script("entry_claim") is script("entry_claim")


@pytest.mark.parametrize("name", LUA)
class TestEveryFile:
    def test_first_line_is_its_promise(self, name: str) -> None:
        first = (files("pallas.redis") / "lua" / f"{name}.lua").read_text("utf-8").split("\n", 1)[0]
        assert re.fullmatch(r"-- [A-Z].{20,117}[.:]?", first)
        assert not first.startswith(("-- KEYS", "-- ARGV", "-- Returns"))

    def test_every_key_has_its_type(self, name: str) -> None:
        text = (files("pallas.redis") / "lua" / f"{name}.lua").read_text("utf-8")
        header = re.search(r"^-- KEYS: (.*)$", text, re.MULTILINE)
        assert header is not None
        for key in header[1].split(", "):
            assert re.fullmatch(r"[a-z_]+ \((HASH|STRING|ZSET)\)( …)?", key)

    def test_it_says_what_it_returns(self, name: str) -> None:
        assert re.search(
            r"^-- Returns ", (files("pallas.redis") / "lua" / f"{name}.lua").read_text("utf-8"), re.MULTILINE
        )

    def test_it_needs_nothing_that_only_some_servers_bring(self, name: str) -> None:
        # The in-memory server has none of these libraries.
        source = script(name).source
        assert not re.search(r"\b(struct|cmsgpack|cjson|bit)\.", source)

    def test_it_touches_only_keys_that_it_was_given(self, name: str) -> None:
        made = script(name)
        for call in re.findall(r"redis\.call\(([^)]*)", made.source):
            command, _, rest = call.partition(",")
            assert command.strip("'") == "TIME" or rest.split(",")[0].strip() in made.keys
