"""`pallas up`: a whole deployment on one machine, its ledger kept outside, and what happens when parts of it die."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.deployment import Site, api, arguments, ended, events, is_ready, ledger, metric, ready_line, site
from tests.support.waiting import block_until

ALL_ENDS = {"napcat", "llonebot", "lagrange", "gocq"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as here:
        yield here


def test_three_workers_answer_every_message_once(here: Site) -> None:
    here.up(3)
    books = here.demo(*arguments(accounts=8, groups=10, messages=300, rate=200, seed=1))
    assert (books["physical"], books["answered"], books["lost"], books["doubled"]) == (300, 300, 0, 0)
    assert books["repeats"] > 20
    assert books["copies"] > 10
    assert books["implementations"].keys() == ALL_ENDS
    assert len(books["workers"]) == 3
    ours = block_until(lambda: _settled(here), 10, saying="the product's own books balance")
    assert ours["handled"] == 300


def test_old_ends_without_sequences_and_split_sockets_are_answered_once_too(here: Site) -> None:
    here.up(3)
    # Redis learns from the first such report in a group that contents must be compared there.
    here.load(3, messages=40, rate=100, seed=4, plain=0.5, repeats=0.0, spread_s=0.2).result(60)
    report = here.load(3, messages=300, rate=150, seed=2, plain=0.5, split=True).result(60)
    assert (report.physical, report.answered, report.lost, report.doubled) == (300, 300, 0, 0), report
    block_until(lambda: _settled(here), 10, saying="the product's own books balance")


def _settled(here: Site) -> dict[str, int]:
    """The Redis side of the books, once nothing is open in it."""
    ended_ = api(here, "books")["ended"]
    return ended_ if ended_["open"] == 0 else {}


def test_second_up_on_the_same_folder_says_who_has_it(here: Site) -> None:
    first = here.up(1)
    second = here.start("second", "up", "--workers", "1", "--app", "pallas.demo:app")
    assert ended(second) == 1
    assert f"is in use by process {first.pid}" in second.output()
    assert "--data" in second.output()
    assert is_ready(here.hub_url)


def test_sigterm_stops_everything_and_ends_with_0(here: Site) -> None:
    up = here.up(2)
    assert len(here.family.members()) == 5
    assert up.terminate() == 0, up.output()
    assert not here.family.members()
    assert not list((here.data / "run").glob("*.json"))
    assert "Traceback" not in up.output()


def test_nothing_outlives_an_up_that_was_killed(here: Site) -> None:
    up = here.up(2)
    load = here.start("load", "demo", "--json", *arguments(messages=400, rate=100))
    block_until(lambda: metric(here.worker_url(0), "pallas_ingress_reports_total") > 20, 15, saying="the load flows")
    left = set(here.family.members()) - {up.pid, load.pid}
    assert len(left) == 4
    up.kill()
    killed = time.monotonic()
    block_until(lambda: not left & here.family.members().keys(), 10, saying=f"{left} have ended")
    assert time.monotonic() - killed < 3.0


@pytest.mark.row("F4")
def test_workers_go_on_while_the_hub_is_dead(here: Site) -> None:
    up = here.up(2)
    line = ready_line(up)
    assert line
    load = here.start("load", "demo", "--json", *arguments(messages=600, rate=100, seed=7))
    answered = "pallas_outbound_calls_total"
    block_until(lambda: metric(here.worker_url(0), answered) > 20, 15, saying="answers flow")
    os.kill(line["pids"]["hub"], signal.SIGKILL)
    block_until(lambda: not is_ready(here.hub_url), 5, saying="the hub is down")
    at_death = _answers(here)
    block_until(lambda: _answers(here) > at_death + 30, 5, saying="answers go on without a hub")
    block_until(lambda: is_ready(here.hub_url), 15, saying="the hub is back")
    assert ended(load, 40) == 0, load.output()
    books = ledger(load)
    assert (books["answered"], books["lost"], books["doubled"]) == (600, 0, 0)
    ours = block_until(lambda: _settled(here), 10, saying="the product's own books balance")
    assert ours["handled"] == 600
    died = events(up, "process.ended")
    assert [event["process"] for event in died] == ["hub"]


def _answers(here: Site) -> float:
    return sum(metric(here.worker_url(shard), "pallas_outbound_calls_total") for shard in (0, 1))


def test_killed_worker_is_started_again_under_its_number(here: Site) -> None:
    up = here.up(2)
    line = ready_line(up)
    assert line
    load = here.load(2, messages=500, rate=100, seed=3, patience_s=4, time_scale=0.3)
    block_until(lambda: _answers(here) > 50, 15, saying="answers flow")
    before = {row["shard_id"]: row for row in api(here, "shards")["shards"]}
    os.kill(line["pids"]["worker-1"], signal.SIGKILL)
    block_until(lambda: metric(here.worker_url(1), "pallas_link_open") >= 4, 20, saying="its accounts are back")
    after = block_until(lambda: _rows_of_new_epoch(here, before["1"]["epoch"]), 10, saying="the hub shows the new one")
    assert after["0"]["epoch"] == before["0"]["epoch"]
    assert after["1"]["pid"] != before["1"]["pid"]
    (died,) = events(up, "process.ended")
    assert died["process"] == "worker-1"
    assert "pallas dead list" in died["hint"]
    # What the killed worker alone had seen may be lost with it; nothing may be answered twice.
    assert load.result(60).doubled == 0
    _answers_once(here, seed=11)
    assert "Traceback" not in up.output(100_000)


def _answers_once(here: Site, seed: int) -> None:
    report = here.load(2, messages=40, rate=100, seed=seed, spread_s=0.3, settle_s=1.0).result(30)
    assert (report.answered, report.lost, report.doubled) == (40, 0, 0), report


def _rows_of_new_epoch(here: Site, old: int) -> dict[str, dict[str, object]]:
    rows = {row["shard_id"]: row for row in api(here, "shards")["shards"]}
    return rows if rows["1"]["epoch"] != old and rows["1"]["state"] == "live" else {}


def test_killed_valkey_is_started_again_on_its_data(here: Site) -> None:
    up = here.up(2)
    line = ready_line(up)
    assert line
    os.kill(line["pids"]["valkey"], signal.SIGKILL)
    block_until(lambda: len(events(up, "redis.started")) == 2, 5, saying="it was started again")
    block_until(lambda: all(map(is_ready, (here.worker_url(0), here.worker_url(1)))), 15, saying="workers are ready")
    _answers_once(here, seed=2)
    assert "Traceback" not in up.output(100_000)


@pytest.mark.parametrize(
    "app, expected",
    [("no_such_bot:app", "no_such_bot"), ("pallas.demo:nothing", "nothing"), ("json:dumps", "not an App")],
)
def test_a_mistake_in_the_bot_is_told_once_before_anything_is_started(here: Site, app: str, expected: str) -> None:
    up = here.start("up", "up", "--workers", "2", "--app", app)
    assert ended(up, 30) == 1
    assert expected in up.output()
    assert up.output().count("pallas: app") == 1
    assert "Traceback" not in up.output()
    assert not events(up, "redis.started")
    assert not (here.data / "redis").exists()
    assert not here.family.members()


def test_up_ends_where_a_port_is_taken(here: Site) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", here.worker_port + 1))
        taken.listen()
        up = here.start("up", "up", "--workers", "2", "--app", "pallas.demo:app")
        assert ended(up, 30) == 1
    said = up.output()
    assert said.count(f"shard 1 cannot listen on 127.0.0.1:{here.worker_port + 1}") == 1
    assert "PALLAS_WORKER_PORT" in said
    assert "Traceback" not in said
    assert not here.family.members()


def test_up_ends_where_the_hubs_port_is_taken(here: Site) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", here.hub_port))
        taken.listen()
        up = here.start("up", "up", "--workers", "1", "--app", "pallas.demo:app")
        assert ended(up, 30) == 1
    assert f"the hub cannot listen on 127.0.0.1:{here.hub_port}" in up.output()
    assert "PALLAS_HUB_PORT" in up.output()
    assert "Traceback" not in up.output()


def test_up_refuses_settings_that_cannot_be(here: Site) -> None:
    up = here.start("up", "up", PALLAS_LEASE_S="900")
    assert ended(up) == 1
    assert "PALLAS_LEASE_S" in up.output()
    assert "Traceback" not in up.output()
