"""`pallas demo --all-in-one`, the first thing a person runs: what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.deployment import ledger
from tests.support.family import Family
from tests.support.processes import PallasProcess
from tests.support.terminal import TerminalProcess
from tests.support.waiting import block_until

ALL_IN_ONE = ("demo", "--all-in-one", "--messages", "40")
GONE_S = 3.0


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Family(tmp_path) as family:
        # Its throw-away folder is made there; the path stays short, for a socket is in it.
        family.environment["TMPDIR"] = str(tmp_path)
        yield family


@pytest.fixture
def no_process_left(family: Family, tmp_path: Path) -> Iterator[None]:
    yield
    assert not family.members()
    assert not list(tmp_path.glob("pallas-demo-*"))


@pytest.mark.usefixtures("no_process_left")
def test_demo_answers_every_message_once_and_ends_by_itself(family: Family, tmp_path: Path) -> None:
    with PallasProcess((*ALL_IN_ONE, "--json"), family.environment, tmp_path, "demo") as demo:
        block_until(lambda: demo.exit_code is not None, 40, saying="the demo ends")
        assert demo.exit_code == 0, demo.output()
        assert "Traceback" not in demo.output()
    books = ledger(demo)
    assert books["physical"] == books["answered"] == 40
    assert books["lost"] == books["doubled"] == 0
    assert len(books["workers"]) == 2
    assert all(worker["answered"] for worker in books["workers"].values())
    assert {impl for impl, share in books["implementations"].items() if share["reports"]} == {
        "napcat",
        "llonebot",
        "lagrange",
        "gocq",
    }


@pytest.mark.usefixtures("no_process_left")
def test_demo_in_a_terminal_tells_what_it_does_and_stays_until_ctrl_c(
    family: Family, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with TerminalProcess(ALL_IN_ONE, family.environment, tmp_path) as demo:
        first_answer_s = demo.wait_for("first answer after")
        record_property("start_to_first_answer_s", round(first_answer_s, 2))
        # The promise is 5 s on a free machine; this one may be busy.
        assert first_answer_s < 15
        demo.wait_for("Everything keeps running", 40)
        assert len(family.members()) == 5  # this command, Valkey, a hub, two workers
        demo.press_ctrl_c()
        assert demo.ended() == 0, demo.text
        text = demo.text
    assert "Stopped: no process" in text
    assert text.count("/signin?code=") == 2
    assert len(set(re.findall(r"/signin\?code=(\S+)", text))) == 2, "the closing line has a link of its own"
    assert "For example: a person writes `ping " in text
    for expected in ("Starting an embedded Valkey", "/signin?code=", "Worker 0", "Worker 1", "lost", "doubled"):
        assert expected in text, text
    assert "Traceback" not in text
    assert "error" not in text.lower()


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("words", ["Starting an embedded", "Connecting 8 simulated", "first answer after"])
def test_ctrl_c_stops_the_demo_at_any_time(family: Family, tmp_path: Path, words: str) -> None:
    with TerminalProcess(ALL_IN_ONE, family.environment, tmp_path) as demo:
        demo.wait_for(words)
        demo.press_ctrl_c()
        assert demo.ended() in {0, 130}, demo.text
        assert "Traceback" not in demo.text


@pytest.mark.usefixtures("no_process_left")
@pytest.mark.parametrize("words", ["Starting an embedded", "first answer after"])
def test_second_ctrl_c_does_not_wait_and_leaves_no_file_either(family: Family, tmp_path: Path, words: str) -> None:
    with TerminalProcess(ALL_IN_ONE, family.environment, tmp_path) as demo:
        demo.wait_for(words)
        demo.press_ctrl_c()
        demo.press_ctrl_c()
        assert demo.ended() in {0, 130}, demo.text
        assert "Stopped: no process and no file of it is left." in demo.text
        assert "Traceback" not in demo.text
        block_until(lambda: not family.members(), GONE_S, saying="its processes have ended")


@pytest.mark.parametrize("when", ["starting", "under load"])
def test_nothing_outlives_a_demo_that_was_killed(family: Family, tmp_path: Path, when: str) -> None:
    with TerminalProcess((*ALL_IN_ONE, "--rate", "10"), family.environment, tmp_path) as demo:
        demo.wait_for("Starting an embedded")
        if when == "starting":
            block_until(lambda: len(family.members()) > 2, saying="its processes start")
        else:
            demo.wait_for("first answer after")
        os.kill(demo.pid, signal.SIGKILL)
        killed = time.monotonic()
        block_until(lambda: not family.members(), 10, saying=f"all have ended: {family.members()}")
        assert time.monotonic() - killed < GONE_S


def test_demo_finds_other_ports_where_its_own_are_taken(family: Family, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with TerminalProcess(ALL_IN_ONE, family.environment | {"PALLAS_HUB_PORT": str(port)}, tmp_path) as demo:
            demo.wait_for("first answer after")
            assert f"127.0.0.1:{port}/" not in demo.text
            demo.press_ctrl_c()
            assert demo.ended() == 0, demo.text
