"""One event is one line, whatever was put into it."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import SecretStr

from pallas import log
from pallas.log_clean import escape

CANARY = "canary-3f9a1c7e5b"
INJECTIONS = [
    "a\nb",
    "a\r\nb",
    "a\x1b[2J\x1b[31mb",
    "a\u2028b\u2029c",
    "a\x85b",
    "a\u202eb\u2066c\u200f",
    "a\x00b\x07",
    "a\ud800b",
    'a","level":"error","x":"b',
    "a\x9b31mb",
    "a\U000e0041b\ufeff",
    "x" * 1_000_000,
    "\n" * 100_000,
]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers, show = root.level, list(root.handlers), warnings.showwarning
    yield
    logging.captureWarnings(capture=False)
    warnings.showwarning = show
    root.setLevel(level)
    root.handlers[:] = handlers
    structlog.reset_defaults()


class Output(io.StringIO):
    def lines(self) -> list[str]:
        # Not splitlines(): only a line feed ends a line of a log file.
        return self.getvalue().split("\n")[:-1]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


def logged(**options: Any) -> tuple[Any, Output]:
    output = Output()
    # pytest's own handlers fail the test for lines that a handler of ours must survive.
    logging.getLogger().handlers.clear()
    log.configure(stream=output, **{"form": "json", **options})
    return structlog.get_logger(), output


def test_an_event_is_one_json_line_with_time_level_name_and_fields() -> None:
    logger, output = logged()
    logger.info("worker.ready", shard=1, port=8091, bots=["10001"], late=False, wait_s=0.5, owner=None)
    (event,) = output.events()
    assert event.pop("at").endswith("Z")
    assert event == {
        "level": "info",
        "event": "worker.ready",
        "shard": 1,
        "port": 8091,
        "bots": ["10001"],
        "late": False,
        "wait_s": 0.5,
        "owner": None,
    }


def test_events_below_the_level_are_not_written() -> None:
    logger, output = logged(level="warning")
    logger.info("a.b")
    logger.warning("c.d")
    logging.getLogger("some.library").info("hello")
    assert [event["event"] for event in output.events()] == ["c.d"]


@pytest.mark.parametrize("text", INJECTIONS, ids=range(len(INJECTIONS)))
@pytest.mark.parametrize("form", ["json", "console"])
def test_nothing_in_a_value_can_make_a_second_line(text: str, form: str) -> None:
    logger, output = logged(form=form)
    logger.warning("frame.refused", why=text, nested={"a": [text], text: 1}, **{text[:100]: "x"})
    logger.warning(text)
    logging.getLogger("websockets.server").error("bad: %s", text)
    lines = output.lines()
    assert len(lines) == 3
    for line in lines:
        assert len(line.encode()) <= log.LINE_BYTES
        assert escape(line) == line
        assert form != "json" or json.loads(line)["level"] in {"warning", "error"}


@hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(), inner, max_size=30),
        max_leaves=40,
    )
)
def test_any_value_makes_one_line_that_is_json(value: Any) -> None:
    logger, output = logged()
    logger.info("a.b", value=value)
    (event,) = output.events()
    assert event["event"] == "a.b"
    assert len(output.lines()[0].encode()) <= log.LINE_BYTES


class Loud:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class Colour(StrEnum):
    RED = "red"


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    logger, output = logged()
    logger.info("a.b", big=1 << 70, colour=Colour.RED, error=ValueError("x"), loud=Loud(), raw_bytes=b"abc", s={1})
    (event,) = output.events()
    assert event["big"] == str(1 << 70)
    assert (event["colour"], event["error"], event["loud"], event["s"]) == ("red", "x", "<Loud>", [1])
    assert event["raw_bytes"] == "<3 bytes>"


def test_a_field_is_cut_and_says_how_long_it_was() -> None:
    logger, output = logged()
    logger.info("a.b", value="x" * 700)
    assert output.events()[0]["value"] == "x" * 500 + "… (700 characters)"


def test_a_line_of_many_fields_is_cut_to_its_limit_and_keeps_time_level_and_name() -> None:
    logger, output = logged()
    logger.info("a.b", **{f"field{n}": "y" * 400 for n in range(20)})
    logger.info("c.d", **{f"field{n}": n for n in range(2000)})
    first, second = output.events()
    assert first["field19"].startswith("y")
    assert first["cut"] is True
    assert {key: second[key] for key in ("level", "event", "cut")} == {"level": "info", "event": "c.d", "cut": True}
    assert len(second["at"]) == len("2026-01-01T00:00:00.000Z")


def test_a_field_cannot_pose_as_time_level_or_name() -> None:
    logger, output = logged()
    logger.info("a.b", at="x")
    logging.getLogger("some.library").warning("hi", extra={"level": "debug", "event": "x.y"})
    first, second = output.events()
    assert first["at"].endswith("Z")
    assert first["at_"] == "x"
    assert (second["level"], second["event"]) == ("warning", "library.logged")


@pytest.mark.parametrize("form", ["json", "console"])
def test_no_secret_and_no_message_body_reaches_the_log(form: str) -> None:
    logger, output = logged(form=form, secrets=[CANARY], level="debug")
    known = CANARY
    unknown = "unknown-secret-77f0"
    logger.info(
        "link.refused",
        token=unknown,
        access_token=unknown,
        headers={"Authorization": f"Bearer {unknown}", "Cookie": unknown},
        url=f"ws://h/ws?access_token={unknown}",
        redis=f"redis://:{unknown}@h",
        deep=[[f"password={unknown}"]],
        hidden=SecretStr(unknown),
        free=f"he said {known}",
        raw_message=unknown,
        text=unknown,
        event_data={"message": unknown, "segments": [unknown]},
        cut="x" * 490 + f" token={unknown}",
        cut_url="x" * 480 + f" redis://me:{unknown}@h",
        **{f"name{known}": 1},
    )
    logger.info("event %s", known)
    logger.info(known)
    logging.getLogger("uvicorn.error").error("GET /ws?access_token=%s", unknown)
    logging.getLogger("uvicorn.error").error("key %s", known)
    try:
        raise ValueError(f"redis://:{unknown}@h {known}")
    except ValueError:
        logger.exception("a.failed")
        logging.getLogger("asyncio").exception("failed")
    written = output.getvalue()
    assert written.count("\n") >= 6
    assert known not in written
    assert unknown[:12] not in written


def test_a_traceback_is_part_of_its_line_and_keeps_its_end() -> None:
    logger, output = logged()

    def deeper(depth: int) -> None:
        if depth:
            deeper(depth - 1)
        raise ValueError("y" * 3000 + "the end")

    try:
        deeper(50)
    except ValueError as error:
        logger.error("task.failed", exc_info=error)  # noqa: TRY400 - both ways
        logger.exception("task.failed")
    for event in output.events():
        assert event["traceback"].endswith("the end")
    logger.error("task.failed", exc_info=None)
    assert "traceback" not in output.events()[-1]


def test_a_traceback_in_the_console_cannot_pass_for_a_line() -> None:
    logger, output = logged(form="console")
    try:
        raise ValueError("x\n12:00:00.000 info    worker.ready")
    except ValueError:
        logger.exception("task.failed", shard=1)
    first, *rest = output.lines()
    assert "error   task.failed" in first
    assert "shard=1" in first
    assert rest
    assert all(line.startswith("    | ") for line in rest)


def test_console_fields_can_be_told_apart() -> None:
    logger, output = logged(form="console")
    logger.info("a.b", one="x y=z", two="", three="plain", four=[1])
    assert output.lines()[0].endswith('one="x y=z" two="" three=plain four=[1]')


def test_auto_means_json_unless_a_person_looks() -> None:
    logger, output = logged(form="auto")
    logger.info("a.b")
    assert output.events()

    class Terminal(Output):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    log.configure(stream=terminal)
    structlog.get_logger().info("a.b")
    assert not terminal.lines()[0].startswith("{")


def test_a_library_cannot_flood_the_log() -> None:
    now = [0.0]
    _, output = logged(mono=lambda: now[0])
    noisy = logging.getLogger("websockets.server")
    for number in range(1000):
        noisy.error("bad frame %d", number)
    assert len(output.lines()) == 10
    now[0] = 61
    noisy.error("bad frame %d", 1000)
    assert output.events()[-1]["suppressed"] == 990


def test_a_library_line_that_cannot_be_formatted_is_written_as_it_is() -> None:
    _, output = logged()
    logging.getLogger("some.library").warning("%d and %d", "x")  # noqa: PLE1206 - the fault meant
    assert output.events()[0]["detail"] == "%d and %d"


def test_the_web_servers_own_handlers_are_replaced_and_its_access_lines_silent() -> None:
    other = io.StringIO()
    handler = logging.StreamHandler(other)
    logging.getLogger("uvicorn").addHandler(handler)
    logging.getLogger("uvicorn").propagate = False
    _, output = logged()
    logging.getLogger("uvicorn.error").warning("hello")
    logging.getLogger("uvicorn.access").info("GET /ws?access_token=x")
    assert other.getvalue() == ""
    assert [event["detail"] for event in output.events()] == ["hello"]


def test_configuring_again_does_not_write_twice() -> None:
    _, first = logged()
    _, second = logged()
    logging.getLogger("some.library").warning("x")
    structlog.get_logger().info("a.b")
    assert first.lines() == []
    assert len(second.lines()) == 2


def test_a_closed_stderr_does_not_stop_the_work() -> None:
    logger, output = logged()
    output.close()
    logger.info("a.b")
    logging.getLogger("some.library").warning("x")


def test_a_stream_of_another_encoding_gets_utf8() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    log.configure(stream=stream, form="json")
    structlog.get_logger().info("a.b", name="签到")
    assert json.loads(raw.getvalue())["name"] == "签到"
