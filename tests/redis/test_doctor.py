"""What `pallas doctor` finds on real servers, real folders and real ports, and that it never crashes or leaks."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from pallas.clock import SystemClock
from pallas.deployment import DataDir
from pallas.errors import SettingsError
from pallas.redis import EmbeddedServer
from pallas.redis.probe import ProblemCode
from pallas.settings import Settings, load
from shard.doctor import bad_settings, examine, exit_code, folder_findings, print_findings
from shard.endpoints import Endpoint, publish
from shard.finding import Check, Finding, Level, Translations
from shard.port_checks import Port, try_port
from tests.support.tree import ROOT
from tests.support.valkey import ValkeyProcess, free_ports

FREE_TEXT = {
    "settings_bad",
    "settings_warning",
    "folder_unusable",
    "redis_url_bad",
    "embedded_no_binary",
    "deployment_id_damaged",
    "app_bad",
}
"""What these say comes from an error or a warning, whose text is English."""


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., Settings]:
    """Makes settings with a folder and ports of their own."""
    ports = free_ports(3)

    def make(**given: Any) -> Settings:
        base = {"data_dir": tmp_path / "data", "hub_port": ports, "worker_port": ports + 1}
        environ = {f"PALLAS_{name.upper()}": str(value) for name, value in {**base, **given}.items()}
        return load(environ=environ, cwd=tmp_path)

    return make


@pytest.fixture
def listening() -> Iterator[Callable[[int], None]]:
    """Takes ports, as programs of other people do."""
    taken: list[socket.socket] = []

    def take(port: int) -> None:
        taken.append(socket.create_server(("127.0.0.1", port)))

    yield take
    for each in taken:
        each.close()


async def found(settings: Settings) -> dict[str, Finding]:
    """What the doctor says, by code; both languages can say it."""
    findings = await examine(settings, SystemClock())
    for locale in ("en", "zh_CN.UTF-8"):
        print_findings(findings, as_json=False, locale=locale, stream=io.StringIO())
    return {finding.code: finding for finding in findings}


async def test_nothing_running_is_no_fault_and_nothing_is_made(settings: Callable[..., Settings]) -> None:
    given = settings(app="pallas.demo:app")
    codes = await found(given)
    assert [finding for finding in codes.values() if finding.level is not Level.OK] == []
    assert {"embedded_binary", "embedded_not_running", "folder_absent", "port_free", "app_loads"} <= set(codes)
    assert "pallas up" in codes["embedded_not_running"].what
    assert not given.data_dir.exists()


async def test_a_running_embedded_server_is_asked(settings: Callable[..., Settings]) -> None:
    given = settings()
    async with EmbeddedServer(given.data_dir) as server:
        findings = await examine(given, SystemClock())
        [answer] = [finding for finding in findings if finding.code == "redis_answers"]
        assert "policy noeviction, AOF on" in answer.what
        assert re.search(r"clock [+-]\d+ ms, round trip \d", answer.what)
        assert server.target.password not in repr(findings)
        assert exit_code(findings) == 0


async def test_each_problem_of_a_server_comes_with_what_to_do(
    settings: Callable[..., Settings], new_valkey: Callable[..., ValkeyProcess]
) -> None:
    server = new_valkey("--maxmemory-policy", "allkeys-lru", "--appendonly", "no")
    codes = await found(settings(redis_url=server.url))
    assert codes["redis_evicts"].level is Level.FAIL
    assert codes["redis_not_durable"].level is Level.WARN
    assert "noeviction" in codes["redis_evicts"].todo
    assert "allkeys-lru" in Translations("zh-CN").what(codes["redis_evicts"])


async def test_a_server_that_is_away_is_named_without_its_password(settings: Callable[..., Settings]) -> None:
    url = f"redis://fleet:hunter2hunter2@127.0.0.1:{free_ports(1)}/0"
    findings = await examine(settings(redis_url=url), SystemClock())
    [away] = [finding for finding in findings if finding.check is Check.REDIS]
    assert (away.level, away.code) == (Level.FAIL, "redis_unreachable")
    assert "127.0.0.1" in away.what
    assert "PALLAS_REDIS_URL, from the environment" in away.todo
    assert "hunter2" not in repr(findings)
    assert exit_code(findings) == 1


async def test_a_wrong_password_is_a_finding(
    settings: Callable[..., Settings], new_valkey: Callable[..., ValkeyProcess]
) -> None:
    server = new_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "the-right-password")
    url = f"redis://:a-wrong-password@127.0.0.1:{server.port}/0"
    codes = await found(settings(redis_url=url))
    assert codes["redis_refuses"].level is Level.FAIL
    assert "PALLAS_REDIS_URL, from" not in codes["redis_refuses"].what
    assert "user and password in PALLAS_REDIS_URL" in codes["redis_refuses"].todo
    assert "a-wrong-password" not in repr(codes)


async def test_a_server_that_hangs_is_given_up(
    settings: Callable[..., Settings], new_valkey: Callable[..., ValkeyProcess]
) -> None:
    server = new_valkey()
    server.pause()
    try:
        assert "redis_unreachable" in await found(settings(redis_url=server.url))
    finally:
        server.resume()


async def test_whose_the_prefix_is(settings: Callable[..., Settings], redis_url: str) -> None:
    given = settings(redis_url=redis_url)
    assert (await found(given))["prefix_free"].level is Level.OK
    with redis.Redis.from_url(redis_url) as client:
        client.set("pallas:deployment", "11111111-2222-4333-8444-555555555555")
        foreign = (await found(given))["prefix_foreign"]
        assert foreign.level is Level.FAIL
        assert "11111111…" in foreign.what
        assert "PALLAS_REDIS_PREFIX" in foreign.todo
        for todo in (foreign.todo, Translations("zh-CN").todo(foreign)):
            assert "PALLAS_DEPLOYMENT_ID=11111111-2222-4333-8444-555555555555" in todo
        assert not given.data_dir.exists()
        client.set("pallas:deployment", DataDir(given.data_dir).deployment_id())
        assert (await found(given))["prefix_ours"].level is Level.OK


async def test_a_busy_port_is_named_with_the_setting_that_moves_it(
    settings: Callable[..., Settings], listening: Callable[[int], None]
) -> None:
    given = settings()
    listening(given.hub_port)
    listening(given.worker_port + 1)
    findings = [each for each in await examine(given, SystemClock()) if each.code == "port_busy"]
    assert [each.check for each in findings] == [Check.HUB, Check.WORKERS]
    assert f"sport = :{given.hub_port}" in findings[0].todo
    assert "PALLAS_HUB_PORT" in findings[0].todo
    assert f"port {given.worker_port + 1}" in findings[1].what
    assert "PALLAS_WORKER_PORT" in findings[1].todo


async def test_a_port_that_our_own_process_holds_is_judged_by_what_that_says(
    settings: Callable[..., Settings], listening: Callable[[int], None]
) -> None:
    given = settings()
    listening(given.hub_port)
    url = f"http://127.0.0.1:{given.hub_port}"
    publish(given.data_dir, Endpoint("hub", os.getpid(), url, url))
    codes = await found(given)
    assert "port_busy" not in codes
    assert codes["process_silent"].level is Level.FAIL
    assert str(os.getpid()) in codes["process_silent"].todo
    assert codes["embedded_gone"].level is Level.FAIL


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    assert try_port("192.0.2.1", free_ports(1)) is Port.NOT_HERE
    assert try_port("127.0.0.1", free_ports(1)) is Port.FREE


@pytest.mark.parametrize(
    "source, code, says",
    [
        ("from pallas import App\napp = App('x')\n@app.message()\nasync def f(ctx): ...\n", "app_loads", "'x'"),
        ("import nowhere_to_be_found", "app_bad", "nowhere_to_be_found"),
        ("raise RuntimeError('token=' + 'secret-secret')", "app_bad", "[hidden]"),
        ("import os\nprint('hello')\nos._exit(7)", "app_ends_process", "ended the process (7)"),
        ("print('{\"a\": 1}')\nvalue = 1", "app_bad", "no 'app'"),
    ],
)
async def test_the_bot_is_loaded_where_it_can_do_no_harm(
    source: str,
    code: str,
    says: str,
    settings: Callable[..., Settings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a_bot.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    codes = await found(settings(app="a_bot:app"))
    assert says in codes[code].what
    assert "a_bot" not in sys.modules
    assert capfd.readouterr().out == ""


async def test_workers_open_to_others_without_a_token_are_a_warning(settings: Callable[..., Settings]) -> None:
    assert (await found(settings()))["token_not_needed"].level is Level.OK
    assert (await found(settings(host="0.0.0.0")))["token_missing"].level is Level.WARN
    codes = await found(settings(host="0.0.0.0", onebot_token="a-long-enough-token"))
    assert "token_set" in codes
    assert "a-long-enough-token" not in repr(codes)


async def test_memory_is_for_trying(settings: Callable[..., Settings]) -> None:
    assert (await found(settings(redis_url="memory://")))["memory_forgets"].level is Level.WARN


def test_a_folder_is_judged_by_whose_it_is_and_who_may_write_there(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    assert [each.code for each in folder_findings(folder)] == ["folder_usable"]
    folder.chmod(0o777)
    assert [each.code for each in folder_findings(folder)] == ["folder_usable", "folder_open"]
    folder.chmod(0o700)
    (folder / "deployment-id").write_text("nonsense\n")
    [damaged] = folder_findings(folder)
    assert (damaged.level, damaged.code) == (Level.FAIL, "folder_unusable")
    file = tmp_path / "file"
    file.touch()
    assert [each.level for each in folder_findings(file)] == [Level.FAIL]
    assert [each.level for each in folder_findings(file / "deeper")] == [Level.FAIL]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_a_warning(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    assert "folder_foreign" in [each.code for each in folder_findings(tmp_path)]


def test_bad_settings_are_a_finding_with_every_line() -> None:
    with pytest.raises(SettingsError) as raised:
        load(environ={"PALLAS_HUB_PORT": "x", "PALLAS_NOPE": "1"}, cwd=Path("/nonexistent"))
    page = io.StringIO()
    print_findings([bad_settings(raised.value)], as_json=False, stream=page)
    assert page.getvalue().startswith("1 fault.")
    assert "PALLAS_HUB_PORT" in page.getvalue()
    assert "PALLAS_NOPE" in page.getvalue()


def test_json_is_one_list_with_stable_names(capsys: pytest.CaptureFixture[str]) -> None:
    finding = Finding(Level.WARN, Check.APP, "app_unset", "no bot is set", "name one")
    print_findings([finding], as_json=True, locale="zh_CN")
    assert json.loads(capsys.readouterr().out) == [
        {"level": "warn", "check": "app", "code": "app_unset", "what": "no bot is set", "todo": "name one"}
    ]


async def test_where_nothing_is_set_it_does_not_count_to_nought(tmp_path: Path) -> None:
    findings = await examine(load(environ={}, cwd=tmp_path), SystemClock())
    page = io.StringIO()
    print_findings(findings, as_json=False, locale="zh_CN.UTF-8", stream=page)
    assert findings[0].what == "valid, all of them the defaults"
    assert "有效，全部为默认值" in page.getvalue()


def test_a_todo_stands_below_its_finding_in_line() -> None:
    page = io.StringIO()
    findings = [
        Finding(Level.OK, Check.SETTINGS, "settings_valid", "valid", fields={"given": 2}),
        Finding(Level.FAIL, Check.FOLDER, "folder_full", "full", "free it", {"path": "/data", "free": "1 MiB"}),
    ]
    print_findings(findings, as_json=False, locale="zh_CN.UTF-8", stream=page)
    assert page.getvalue().splitlines() == [
        "1 处故障。",
        "",
        "  正常  设置      有效，已设置 2 项",
        "  故障  数据目录  /data 所在磁盘只剩 1 MiB：磁盘写满后内嵌服务器会拒绝一切写入",
        "                  → 请清理该磁盘",
    ]


def test_every_finding_has_its_chinese_sentence() -> None:
    codes = {code.value for code in ProblemCode}
    for name in ("doctor", "redis_checks", "port_checks"):
        for node in ast.walk(ast.parse((ROOT / "shard" / f"{name}.py").read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                code = node.args[2]
                codes |= {code.value} if isinstance(code, ast.Constant) and isinstance(code.value, str) else set()
    sentences = json.loads((ROOT / "shard" / "catalog" / "doctor.zh-CN.json").read_text("utf-8"))
    named = {key.removesuffix(".todo") for key in sentences}
    assert len(codes) > 40
    assert codes - FREE_TEXT - set(sentences) == set()
    assert named - codes == set()
