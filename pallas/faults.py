"""Faults on purpose, for tests: a worker that kills, stops or delays itself at a numbered point of a message's way.

`PALLAS_TEST_FAULT=ACTION:POINT[:VISIT[:MS]]`, such as `kill:claimed:3`, acts at the third visit of the point, once.
Callers hold None where no fault is wanted, so a deployment pays one comparison. Nothing here may touch a message.
"""

from __future__ import annotations

import os
import re
import signal
import time
from enum import IntEnum, StrEnum

import structlog

from pallas.errors import SettingsError

_log = structlog.get_logger()


class Point(IntEnum):
    """Where a fault may happen, numbered in the order of a message's way."""

    READ = 1
    """The report was read, nothing was decided."""
    MATCHED = 2
    """This worker knows the report for a new message that a handler wants."""
    CLAIMING = 3
    """The claim is about to be asked."""
    CLAIMED = 4
    """Redis said won."""
    RUNNING = 5
    """The handler is about to run."""
    EFFECT = 6
    """The effect is about to be recorded."""
    RECORDED = 7
    """The effect is recorded, the call not yet written."""
    SENT = 8
    """The call is written, its answer not yet awaited."""
    ANSWERED = 9
    """The call's answer has come."""
    ENDING = 10
    """The end is about to be submitted."""
    ENDED = 11
    """Redis confirmed the end."""


class Action(StrEnum):
    """What happens at the point."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"


_FORM = re.compile(r"(?P<action>kill|stop|pause):(?P<point>\w+)(?::(?P<visit>[1-9]\d{0,8})(?::(?P<ms>\d{1,6}))?)?")
_POINTS = {name: point for point in Point for name in (point.name.lower(), str(point.value))}


class Faults:
    """One fault, and how often each point was visited."""

    __slots__ = ("_action", "_point", "_seconds", "_visit", "visits")

    def __init__(self, action: Action, point: Point, visit: int = 1, seconds: float = 0.0) -> None:
        self._action = action
        self._point = point
        self._visit = visit
        self._seconds = seconds
        self.visits = dict.fromkeys(Point, 0)

    def __repr__(self) -> str:
        return f"Faults({self._action.value}:{self._point.name.lower()}:{self._visit})"

    def hit(self, point: Point) -> None:
        """Count a visit; at the chosen one the process is killed or stopped, or the calling thread is held."""
        self.visits[point] += 1
        if point is not self._point or self.visits[point] != self._visit:
            return
        _log.warning("fault.hit", action=self._action.value, point=point.name.lower(), visit=self._visit)
        match self._action:
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
            case Action.PAUSE:
                time.sleep(self._seconds)


def faults_of(text: str, *, testing: bool) -> Faults | None:
    """The fault that `PALLAS_TEST_FAULT` asks for, None where it is empty.

    Raises SettingsError, in words that follow the setting's name, where it is malformed or the process does not run for
    tests.
    """
    if not text:
        return None
    if not testing:
        raise SettingsError("is refused unless PALLAS_TESTING=1: it breaks the process")
    fields = _FORM.fullmatch(text)
    point = _POINTS.get(fields["point"]) if fields else None
    if fields is None or point is None:
        actions, points = (", ".join(sort) for sort in (Action, [point.name.lower() for point in Point]))
        raise SettingsError(
            f"= {text!r} must be ACTION:POINT[:VISIT[:MS]] with an action of {actions} and a point "
            f"of 1 to {len(Point)} or {points}"
        )
    return Faults(Action(fields["action"]), point, int(fields["visit"] or 1), int(fields["ms"] or 0) / 1000)
