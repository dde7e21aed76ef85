"""What the commands that start processes say: why they refuse, what programs read, where a person goes next."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
import websockets
from websockets.asyncio.client import connect

from tests.support.deployment import Site, ended, events, is_ready, json_lines, site
from tests.support.processes import PallasProcess
from tests.support.tree import ROOT
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import block_until

APP = ("--app", "pallas.demo:app")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as here:
        yield here


@pytest.mark.parametrize("command", ["up", "hub", "worker"])
def test_a_redis_inside_one_process_is_refused_by_whoever_shares_it(here: Site, command: str) -> None:
    process = here.start(command, command, PALLAS_REDIS_URL="memory://")
    assert ended(process) == 1
    assert "memory:// lives inside one process" in process.output()
    assert "`pallas unified`" in process.output()


@pytest.mark.parametrize("command", ["up", "hub", "worker", "unified"])
def test_wrong_redis_credentials_end_the_start(
    here: Site, command: str, new_valkey: Callable[..., ValkeyProcess]
) -> None:
    server = new_valkey()
    with redis.Redis.from_url(server.url) as client:
        client.config_set("requirepass", "the-right-password")
    url = f"redis://:a-wrong-password@127.0.0.1:{server.port}/0"
    process = here.start(command, command, PALLAS_REDIS_URL=url)
    assert ended(process) == 1
    said = process.output()
    assert said.count("Redis refuses the user name or password (PALLAS_REDIS_URL)") == 1
    assert "`pallas doctor`" in said
    assert "a-wrong-password" not in said
    assert "Traceback" not in said


def test_processes_say_where_they_listen_in_one_json_object(here: Site) -> None:
    unified = here.start("unified", "unified", "--json", *APP)
    [line] = block_until(lambda: _results(unified, "pid"), 20, saying="unified is ready")
    assert line == {
        "hub": here.hub_url,
        "worker": f"ws://127.0.0.1:{here.worker_port}/onebot/v11/ws",
        "pid": unified.pid,
    }
    hub = here.start("hub", "hub", "--json", "--hub-port", str(here.worker_port + 5))
    [line] = block_until(lambda: _results(hub, "name"), 20, saying="the hub is ready")
    assert line == {"name": "hub", "pid": hub.pid, "url": f"http://127.0.0.1:{here.worker_port + 5}"}
    worker = here.start("worker", "worker", "--json", *APP)
    [line] = block_until(lambda: _results(worker, "name"), 20, saying="the worker is ready")
    url = f"ws://127.0.0.1:{here.worker_port + 1}/onebot/v11/ws"
    assert line == {"name": "worker-1", "pid": worker.pid, "url": url}


def _results(process: PallasProcess, name: str) -> list[dict[str, object]]:
    return [line for line in json_lines(process) if name in line and "event" not in line]


def test_a_new_link_is_for_a_hub_that_runs(here: Site) -> None:
    answer = _new_link(here)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"no hub runs on the data folder {here.data}" in answer.stderr
    assert not here.data.exists()
    here.start("unified", "unified", *APP)
    block_until(lambda: is_ready(here.hub_url), 20, saying="the hub is ready")
    answer = _new_link(here)
    assert answer.stdout.startswith(f"{here.hub_url}/signin?code=")
    assert len(answer.stdout.splitlines()) == 1
    assert answer.stderr == "(valid once, for 15 minutes)\n"


def _new_link(here: Site) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pallas.cli", "hub", "--new-link"],
        cwd=here.folder,
        env={"PYTHONPATH": str(ROOT), **here.family.environment, **here.environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


def test_up_without_a_bot_says_once_that_nobody_answers(here: Site) -> None:
    up = here.start("up", "up", "--json", PALLAS_HOST="0.0.0.0")
    block_until(lambda: "Dashboard" in up.output(), 30, saying="the banner is there")
    assert len(events(up, "app.unset")) == 1
    banner = up.output().partition("Dashboard")[2]
    assert "No bot is set: workers count messages, and nobody answers." in banner
    assert f"from other machines: http://<address of this machine>:{here.hub_port}" in banner


async def test_a_protocol_end_that_dials_the_hub_is_told_where_to_go(here: Site) -> None:
    unified = here.start("unified", "unified", *APP)
    block_until(lambda: is_ready(here.hub_url), 20, saying="the hub is ready")
    for _ in range(3):
        with pytest.raises(websockets.InvalidStatus) as refused:
            await connect(f"{here.hub_url.replace('http', 'ws')}/onebot/v11/ws", proxy=None)
        assert refused.value.response.status_code == 404
        assert f"port {here.worker_port} + K" in refused.value.response.body.decode()
    [event] = events(unified, "hub.websocket_dialled")
    assert "not to the hub" in event["hint"]
    assert "WebSocket library" not in unified.output(100_000)
    assert is_ready(here.hub_url)
