"""Endpoint files: what runs here is found, what was killed is not, nobody's file is taken from a successor."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shard.endpoints import Endpoint, publish, running, withdraw


def endpoint(name: str, pid: int = 0) -> Endpoint:
    return Endpoint(name, pid or os.getpid(), f"ws://127.0.0.1:8090/{name}", "http://127.0.0.1:8090")


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_the_hub_stands_first_then_workers_by_number(tmp_path: Path) -> None:
    for name in ("worker-10", "worker-2", "hub", "worker-0"):
        publish(tmp_path, endpoint(name))
    assert [found.name for found in running(tmp_path)] == ["hub", "worker-0", "worker-2", "worker-10"]


def test_what_was_published_is_read_back(tmp_path: Path) -> None:
    publish(tmp_path, endpoint("hub"))
    assert running(tmp_path) == [endpoint("hub")]


def test_nothing_runs_in_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert running(tmp_path / "none") == []


def test_a_process_that_was_killed_does_not_run(tmp_path: Path) -> None:
    publish(tmp_path, endpoint("hub", ended_pid()))
    assert running(tmp_path) == []


def test_only_its_own_process_takes_a_file_away(tmp_path: Path) -> None:
    publish(tmp_path, endpoint("worker-0", os.getppid()))
    withdraw(tmp_path, "worker-0")
    assert [found.pid for found in running(tmp_path)] == [os.getppid()]
    publish(tmp_path, endpoint("worker-0"))
    withdraw(tmp_path, "worker-0")
    withdraw(tmp_path, "worker-0")
    assert running(tmp_path) == []


def test_a_process_of_another_container_does_not_run_here_though_its_number_does(tmp_path: Path) -> None:
    publish(tmp_path, replace(endpoint("worker-0"), host="another-container"))
    publish(tmp_path, endpoint("worker-1"))
    assert [found.name for found in running(tmp_path)] == ["worker-1"]


def test_no_process_takes_away_the_file_of_one_with_its_number_elsewhere(tmp_path: Path) -> None:
    publish(tmp_path, replace(endpoint("hub"), host="another-container"))
    withdraw(tmp_path, "hub")
    assert json.loads((tmp_path / "run" / "hub.json").read_text())["host"] == "another-container"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "{}", '{"pid": "x", "host": "", "url": "", "health": ""}', '{"pid": 1, "url": ""}', "null"],
)
def test_a_broken_file_counts_for_nothing(tmp_path: Path, content: str) -> None:
    publish(tmp_path, endpoint("hub"))
    (tmp_path / "run" / "worker-1.json").write_text(content)
    assert [found.name for found in running(tmp_path)] == ["hub"]


def test_the_folder_is_for_its_owner_alone_and_holds_no_drafts(tmp_path: Path) -> None:
    publish(tmp_path, endpoint("hub"))
    publish(tmp_path, endpoint("hub"))
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["hub.json"]
    assert json.loads((tmp_path / "run" / "hub.json").read_text())["pid"] == os.getpid()
