"""Faults on purpose: how they are asked for, when they act, and that no deployment gets one by mistake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pallas.errors import SettingsError
from pallas.faults import Faults, Point, faults_of
from pallas.settings import Settings
from tests.support.tree import ROOT
from tests.support.waiting import block_until

_ACTS = """
from pallas.faults import Point, faults_of
faults = faults_of({text!r}, testing=True)
for visit in range(1, 4):
    print("visit", visit, flush=True)
    faults.hit(Point.RUNNING)
    faults.hit(Point.CLAIMED)
print("over", flush=True)
"""


def acting(text: str) -> subprocess.Popen[str]:
    """A process that comes by the points CLAIMED and RUNNING three times."""
    code = _ACTS.format(text=text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)


def test_points_are_numbered_in_the_order_of_a_messages_way() -> None:
    assert [point.value for point in Point] == list(range(1, 12))
    names = "read matched claiming claimed running effect recorded sent answered ending ended"
    assert [point.name.lower() for point in Point] == names.split()


@pytest.mark.parametrize("text", ["kill:claimed:2", "kill:4:2"])
def test_the_process_is_killed_at_that_visit_of_that_point(text: str) -> None:
    process = acting(text)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert "visit 2" in said
    assert "visit 3" not in said
    assert "fault.hit" in said


def test_a_stopped_process_goes_on_where_it_stood_and_is_not_stopped_again() -> None:
    process = acting("stop:claimed")
    block_until(lambda: _is_stopped(process.pid), 20, saying="it is stopped")
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert said.splitlines()[-1] == "over"


def _is_stopped(pid: int) -> bool:
    waited, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
    return waited == pid and os.WIFSTOPPED(status)


def test_a_pause_holds_the_caller_once() -> None:
    faults = faults_of("pause:sent:2:60", testing=True)
    assert faults is not None
    spent = []
    for _ in range(3):
        began = time.monotonic()
        faults.hit(Point.SENT)
        spent.append(time.monotonic() - began)
    assert spent[1] >= 0.06
    assert max(spent[0], spent[2]) < 0.06


def test_visits_are_counted_at_every_point() -> None:
    faults = faults_of("kill:ended:9", testing=True)
    assert isinstance(faults, Faults)
    for point in (Point.READ, Point.READ, Point.SENT):
        faults.hit(point)
    assert faults.visits == {point: {Point.READ: 2, Point.SENT: 1}.get(point, 0) for point in Point}
    assert repr(faults) == "Faults(kill:ended:9)"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "claimed",
            "kill",
            "kill:",
            "kill:nowhere",
            "kill:0",
            "kill:12",
            "burn:claimed",
            " kill:claimed",
            "KILL:claimed",
        ),
        *("kill:claimed:0", "kill:claimed:x", "kill:claimed:1:2:3", "pause:sent::5", "pause:sent:1:-5"),
    ],
)
def test_what_is_not_a_fault_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(SettingsError, match=r"must be ACTION:POINT\[:VISIT\[:MS\]\].*kill, stop, pause.*1 to 11.*read"):
        faults_of(text, testing=True)
    with pytest.raises(ValueError, match="PALLAS_TEST_FAULT = "):
        Settings(testing=True, test_fault=text)


def test_without_the_setting_there_are_none_and_outside_of_tests_never() -> None:
    assert faults_of("", testing=False) is None
    assert faults_of("", testing=True) is None
    with pytest.raises(SettingsError, match="refused unless PALLAS_TESTING=1"):
        faults_of("kill:claimed", testing=False)
