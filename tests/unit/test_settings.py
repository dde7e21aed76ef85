"""Where a setting's value comes from, and what an operator is told about one that cannot be used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from pallas.errors import SettingsError
from pallas.redis import parse_url
from pallas.settings import Settings, describe, load
from pallas.settings_values import REDIS_SCHEMES

CANARY = "canary-3f9a1c7e5b"


def refusal(cwd: Path, environ: dict[str, str] | None = None, **arguments: Any) -> str:
    with pytest.raises(SettingsError) as caught:
        load(environ=environ or {}, cwd=cwd, **arguments)
    return str(caught.value)


def test_without_any_source_every_setting_has_its_documented_default(tmp_path: Path) -> None:
    settings = load(environ={}, cwd=tmp_path)
    assert settings.redis_url == "embedded://"
    assert (settings.host, settings.hub_port, settings.worker_port) == ("127.0.0.1", 8088, 8090)
    assert settings.shard_id is None
    assert settings.app == ""
    assert settings.onebot_path == "/onebot/v11/ws"
    assert settings.onebot_token is None
    assert settings.data_dir == tmp_path / "pallas-data"
    assert settings.config is None
    assert settings.origin("hub_port") == "the default"
    assert settings.warnings == ()


@pytest.mark.parametrize(
    "sources, port, origin",
    [
        ("toml", 4001, "pallas.toml"),
        ("toml dotenv", 4002, ".env line 1"),
        ("toml dotenv environ", 4003, "the environment"),
        ("toml dotenv environ argument", 4004, "the command line"),
        ("toml argument", 4004, "the command line"),
    ],
)
def test_the_nearer_source_wins(tmp_path: Path, sources: str, port: int, origin: str) -> None:
    if "toml" in sources:
        (tmp_path / "pallas.toml").write_text("[hub]\nport = 4001\n")
    if "dotenv" in sources:
        (tmp_path / ".env").write_text("PALLAS_HUB_PORT=4002\n")
    environ = {"PALLAS_HUB_PORT": "4003"} if "environ" in sources else {}
    settings = load(environ=environ, cwd=tmp_path, hub_port=4004 if "argument" in sources else None)
    assert settings.hub_port == port
    assert origin in settings.origin("hub_port")


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PALLAS_HUB_PORT=4002\nPALLAS_HUB_TOKEN=\n")
    settings = load(environ={"PALLAS_HUB_PORT": "", "PALLAS_SHARD_ID": ""}, cwd=tmp_path)
    assert settings.hub_port == 4002
    assert settings.hub_token is None
    assert settings.shard_id is None


def test_a_bad_value_in_the_nearer_source_is_not_replaced_by_a_good_one_further_away(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PALLAS_HUB_PORT=4002\n")
    assert "PALLAS_HUB_PORT = 'x'" in refusal(tmp_path, {"PALLAS_HUB_PORT": "x"})


@pytest.mark.parametrize(
    "text",
    ["redis_prefix = 'mine'", "[redis]\nprefix = 'mine'", "PALLAS_REDIS_PREFIX = 'mine'"],
)
def test_a_toml_key_may_use_tables_or_underscores_or_the_variable_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "pallas.toml").write_text(text)
    assert load(environ={}, cwd=tmp_path).redis_prefix == "mine"


def test_a_toml_key_given_in_two_spellings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pallas.toml").write_text("hub_port = 1\n[hub]\nport = 2\n")
    assert "hub.port is given twice, also as hub_port" in refusal(tmp_path)


def test_pallas_config_names_another_file(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("hub_port = 4005\n")
    settings = load(environ={"PALLAS_CONFIG": "other.toml"}, cwd=tmp_path)
    assert settings.hub_port == 4005
    assert settings.config == tmp_path / "other.toml"


def test_a_named_settings_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path, {"PALLAS_CONFIG": "other.toml"})
    assert f"{tmp_path}/other.toml does not exist" in told
    assert "PALLAS_CONFIG" in told


def test_a_settings_file_cannot_name_another_one(tmp_path: Path) -> None:
    (tmp_path / "pallas.toml").write_text("config = 'other.toml'\n")
    assert "config is not a setting" in refusal(tmp_path)


def test_only_our_names_of_a_shared_dotenv_file_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DATABASE_URL=x\nexport PALLAS_HUB_PORT=4006 # comment\nHUB_PORT=1\n")
    assert load(environ={"HUB_PORT": "1"}, cwd=tmp_path).hub_port == 4006


def test_nothing_in_a_dotenv_file_is_expanded(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PALLAS_HUB_TOKEN='a${HOME}b$c'\n")
    assert load(environ={"HOME": "x"}, cwd=tmp_path).hub_token == SecretStr("a${HOME}b$c")


@pytest.mark.parametrize(
    "name, content, told",
    [
        (".env", b"PALLAS_HUB_PORT=1\nhello there\n", "line 2"),
        (".env", b"\xff\xfe\x00", "is not UTF-8"),
        ("pallas.toml", b"hub_port = \n", "is not valid TOML"),
        ("pallas.toml", b"\xff\xfe", "is not UTF-8"),
        ("pallas.toml", b"a = " + b"[" * 5000, "is not valid TOML"),
        ("pallas.toml", b"#" * (1 << 20) + b"#", "is larger than 1 MiB"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    text = refusal(tmp_path)
    assert str(tmp_path / name) in text
    assert told in text


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    assert "cannot be read" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name, near",
    [
        ("PALLAS_HUBPORT", "PALLAS_HUB_PORT"),
        ("PALLAS_REDIS", "PALLAS_REDIS_URL"),
        ("PALLAS_ONEBOT_TOKENS", "PALLAS_ONEBOT_TOKEN"),
        ("PALLAS_CLAIM_TTL", "PALLAS_CLAIM_TTL_S"),
        ("pallas_superuser", "PALLAS_SUPERUSERS"),
        ("PALLAS_FEDERATE_IDS", "PALLAS_FEDERATE_ID"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(tmp_path: Path, name: str, near: str) -> None:
    told = refusal(tmp_path, {name: "1"})
    assert f"{name.upper()} is not a setting; did you mean {near}" in told
    assert "the environment" in told


def test_an_unknown_name_that_is_like_nothing_is_refused_without_a_guess(tmp_path: Path) -> None:
    assert "did you mean" not in refusal(tmp_path, {"PALLAS_XYZZY": "1"})


def test_an_unknown_toml_key_is_shown_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "pallas.toml").write_text("[hub]\nprot = 1\n")
    told = refusal(tmp_path)
    assert "hub.prot is not a setting; did you mean PALLAS_HUB_PORT" in told
    assert "pallas.toml" in told


def test_the_one_variable_of_the_projects_own_tests_is_left_alone(tmp_path: Path) -> None:
    load(environ={"PALLAS_TEST_BROWSER": "none"}, cwd=tmp_path)


@pytest.mark.parametrize("name", ["PALLAS_TEST_FALUT", "PALLAS_TEST_BROWSERS", "PALLAS_TEST_"])
def test_a_name_that_only_looks_like_one_of_the_tests_is_unknown(tmp_path: Path, name: str) -> None:
    assert f"{name} is not a setting" in refusal(tmp_path, {name: "1"})


@pytest.mark.parametrize("scheme", REDIS_SCHEMES)
def test_every_form_of_a_redis_address_is_a_setting_and_is_understood(tmp_path: Path, scheme: str) -> None:
    rest = {"embedded": "", "memory": "", "unix": "/run/r.sock"}.get(scheme, "h/main" if "sentinel" in scheme else "h")
    address = f"{scheme}://{rest}"
    assert parse_url(load(environ={"PALLAS_REDIS_URL": address}, cwd=tmp_path).redis_url).scheme == scheme
    assert parse_url(load(environ={"PALLAS_REDIS_URL": address.upper()}, cwd=tmp_path).redis_url).scheme == scheme


@pytest.mark.parametrize("scheme", ["redis+sentinel", "rediss+cluster", "unix"])
def test_a_redis_address_that_cannot_be_used_names_the_form_that_can(scheme: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"expected {scheme}://")):
        parse_url(f"{scheme}://")


def test_an_unknown_argument_is_a_fault_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="hubport"):
        load(environ={}, cwd=tmp_path, hubport=1)


def test_every_bad_setting_is_named_at_once_with_value_range_and_place(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("\nPALLAS_WORKER_PORT=99999\n")
    (tmp_path / "pallas.toml").write_text("claim_ttl_s = 30000\nstale_s = 20000\n[log]\nlevel = 'loud'\n")
    told = refusal(tmp_path, {"PALLAS_HUB_PORT": "80a80", "PALLAS_HUBTOKEN": "1"}, lease_s=1)
    lines = told.splitlines()
    assert lines[0] == "7 settings cannot be used:"
    assert "PALLAS_HUBTOKEN is not a setting" in told
    assert "PALLAS_HUB_PORT = '80a80': must be a whole number from 1 to 65535 (from the environment)" in told
    assert f"PALLAS_WORKER_PORT = '99999': must be a whole number from 1 to 65280 (from {tmp_path}/.env line 2)" in told
    assert "PALLAS_LOG_LEVEL = 'loud': must be one of debug, info, warning, error" in told
    assert "PALLAS_CLAIM_TTL_S (30000) must be more than twice PALLAS_STALE_S (20000)" in told
    assert "PALLAS_REDIS_DEAD_AFTER_MS (3000) must be less than PALLAS_LEASE_S (1.0 s)" in told
    assert "PALLAS_LEASE_S must be a number of seconds from 3 to 120" in told


def test_a_contradiction_with_a_bad_setting_is_not_reported_beside_it(tmp_path: Path) -> None:
    told = refusal(tmp_path, {"PALLAS_CLAIM_TTL_S": "no", "PALLAS_STALE_S": "86400"})
    assert told.startswith("PALLAS_CLAIM_TTL_S = 'no'")
    assert "\n" not in told


@pytest.mark.parametrize(
    "key, value",
    [
        ("hub_port", True),
        ("hub_port", 8088.5),
        ("hub_port", [8088]),
        ("lease_s", "nan"),
        ("lease_s", float("inf")),
        ("lease_s", True),
        ("shard_id", -1),
        ("shard_id", 256),
        ("redis_url", ""),
        ("redis_url", "localhost:6379"),
        ("redis_url", "http://x"),
        ("redis_prefix", ""),
        ("redis_prefix", "a:b"),
        ("redis_prefix", "{a}"),
        ("redis_prefix", "a*"),
        ("host", ""),
        ("host", "a b"),
        ("onebot_path", "onebot"),
        ("onebot_path", "/a?b"),
        ("onebot_path", "/"),
        ("app", "pallas.demo"),
        ("app", "pallas.demo:"),
        ("app", "../x:app"),
        ("hub_token", "two words"),
        ("hub_token", "密码"),
        ("hub_token", 12345),
        ("superusers", "0"),
        ("superusers", "10001,none"),
        ("superusers", [True]),
        ("superusers", [1.5]),
        ("superusers", ["a b"]),
        ("superusers", "[1,"),
        ("superusers", -5),
        ("hub_hosts", "http://hub.example"),
        ("log_format", "xml"),
        ("testing", "maybe"),
        ("federate_legacy", "yes"),
        ("federate_peer_bot_ttl_sec", "soon"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused(tmp_path: Path, key: str, value: Any) -> None:
    assert f"PALLAS_{key.upper()} =" in refusal(tmp_path, **{key: value})


@pytest.mark.parametrize(
    "key, value, meant",
    [
        ("hub_port", " 8088 ", 8088),
        ("log_level", "DEBUG", "debug"),
        ("onebot_path", "/ws/", "/ws"),
        ("superusers", "10001, 10002，10001", ("10001", "10002")),
        ("superusers", '["10001", 10002]', ("10001", "10002")),
        ("superusers", [10001, "@who:server.example"], ("10001", "@who:server.example")),
        ("superusers", "", ()),
        ("hub_hosts", "Hub.Example, hub.example:8443", ("hub.example", "hub.example:8443")),
        ("hub_token", "  ", None),
        ("redis_url", "redis+sentinel://a:1,b:2/main/0", "redis+sentinel://a:1,b:2/main/0"),
        ("testing", "1", True),
        ("shard_id", "0", 0),
    ],
)
def test_a_value_is_taken_as_it_is_meant(tmp_path: Path, key: str, value: Any, meant: Any) -> None:
    assert getattr(load(environ={}, cwd=tmp_path, **{key: value}), key) == meant


def test_relative_folders_count_from_the_working_folder(tmp_path: Path) -> None:
    assert load(environ={}, cwd=tmp_path, data_dir="a/b").data_dir == tmp_path / "a/b"
    assert load(environ={}, cwd=tmp_path, data_dir=Path("/a")).data_dir == Path("/a")


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(environ={}, cwd=tmp_path)
    with pytest.raises(ValidationError):
        settings.hub_port = 1  # type: ignore[misc]


def test_constructing_settings_reads_nothing_of_the_surroundings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("PALLAS_HUB_PORT=1\n")
    (tmp_path / "pallas.toml").write_text("hub_port = 2\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALLAS_HUB_PORT", "3")
    assert Settings().hub_port == 8088
    assert load().hub_port == 3


def test_no_text_made_of_settings_holds_a_secret(tmp_path: Path) -> None:
    settings = load(
        environ={
            "PALLAS_ONEBOT_TOKEN": CANARY,
            "PALLAS_HUB_TOKEN": CANARY,
            "PALLAS_FEDERATE_SECRET": CANARY,
            "PALLAS_REDIS_URL": f"redis://:{CANARY}/@host:6379/0",
            "PALLAS_FEDERATE_COORD_REDIS_URL": f"rediss://me:{CANARY}%40@host:6379/0?x={CANARY}",
        },
        cwd=tmp_path,
    )
    for text in (repr(settings), str(settings), str(settings.dump()), f"{settings!r}"):
        assert CANARY not in text.replace(f"?x={CANARY}", "")
    assert settings.dump()["hub_token"] == "(set)"
    assert settings.dump()["redis_url"] == "redis://[hidden]@host:6379/0"
    assert set(settings.secret_values()) == {CANARY, f"{CANARY}/", f"{CANARY}%40", f"{CANARY}@"}


@pytest.mark.parametrize(
    "key, value",
    [
        ("onebot_token", f"{CANARY} x"),
        ("federate_secret", f"{CANARY}\n"),
        ("redis_url", f"redis:/:{CANARY}@host"),
        ("redis_url", f"redi://:{CANARY}@host/"),
        ("federate_coord_redis_url", f":{CANARY}@host"),
    ],
)
def test_a_bad_secret_is_refused_without_showing_it(tmp_path: Path, key: str, value: str) -> None:
    value = value if not value.endswith("\n") else f"{CANARY}\x00"
    (tmp_path / "pallas.toml").write_text(f"{key} = {value!r}\n".replace("\\x00", "\\u0000").replace("'", '"'))
    told = refusal(tmp_path)
    assert f"PALLAS_{key.upper()} = (hidden)" in told
    assert CANARY not in told


def test_a_hostile_value_cannot_write_a_line_of_its_own(tmp_path: Path) -> None:
    told = refusal(tmp_path, {"PALLAS_HUB_PORT": "1\n  all is well\x1b[2J\u2028" + "x" * 5000})
    assert len(told.splitlines()) == 1
    assert len(told) < 300


def test_every_setting_is_described_for_people() -> None:
    infos = describe()
    assert {info.key for info in infos} == set(Settings.model_fields)
    assert len({info.key for info in infos}) == len(infos)
    for info in infos:
        assert info.env == f"PALLAS_{info.key.upper()}"
        assert info.what.endswith("."), info.key
        assert info.cost.endswith("."), info.key
        assert info.allowed, info.key
        times = info.key.rsplit("_", 1)[-1] in {"s", "ms", "sec", "bytes"}
        assert bool(info.unit) == times, info.key


def test_every_described_range_is_the_one_that_is_enforced(tmp_path: Path) -> None:
    for info in describe():
        if " from " not in info.allowed:
            continue
        low, _, high = info.allowed.rpartition(" from ")[2].partition(" to ")
        for value in (f"{float(low) - 1:g}", f"{int(high) + 1}"):
            assert info.env in refusal(tmp_path, {info.env: value}), (info.key, value)
