"""One event, one line, on stderr: JSON for programs, or columns for a person at a terminal.

Everything that logs, ours and the libraries', passes the same cleaning: secrets and message bodies are hidden, control
and direction characters escaped, fields and lines cut to a length. A line never spans two, whatever it was given, and
logging never fails its caller. Lines stay below what a pipe writes in one piece, so that those of several processes
do not mix.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import traceback
from collections.abc import Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson
import structlog

from pallas.log_clean import Cleaner
from pallas.log_limit import LogLimit
from pallas.redact import KnownSecrets

LINE_BYTES = 4000
_TRACEBACK_CHARS = 2400
# Not below the length of a time, which must stay whole.
_SHORTEST_CUT = 60
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# A stranger decides how often these speak: each of their messages gets a few lines a minute.
_LIBRARY_LINES_PER_MIN = 10
# Their own access and handshake lines repeat what our events say, with addresses that may hold a token.
_QUIET_LIBRARIES = ("uvicorn.access", "uvicorn.error", "websockets", "asyncio", "httpx", "httpcore", "urllib3")
_OWN_HANDLERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "uvicorn.asgi")

Event = MutableMapping[str, Any]


def configure(
    *,
    level: str = "info",
    form: str = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
    mono: Callable[[], float] | None = None,
) -> None:
    """Set up logging of this process; may be called again.

    `level` is debug, info, warning or error; `form` is json, console or auto (console on a terminal); `secrets` are
    removed by value wherever they turn up (`Settings.secret_values`).
    """
    stream = sys.stderr if stream is None else stream
    console = form == "console" or (form == "auto" and stream.isatty())
    line = Line(stream, console=console, cleaner=Cleaner(KnownSecrets(secrets)))
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, line],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=_writer_factory(line),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, LibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(LibraryHandler(line, mono))
    root.setLevel(max(_LEVELS[level], logging.INFO))
    for name in _OWN_HANDLERS:
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    for name in _QUIET_LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class Line:
    """Turns an event into its line (a structlog processor, the last one) and writes lines."""

    def __init__(self, stream: TextIO, *, console: bool, cleaner: Cleaner) -> None:
        self._stream = stream
        self._render = console_line if console else json_line
        self._cleaner = cleaner

    def __call__(self, _logger: object, _method: str, event: Event) -> str:
        """The line of `event`, without its end; whatever goes wrong with it, there is a line."""
        try:
            return self._line(event)
        except Exception as error:
            return self._render({"at": _now(), "level": "error", "event": "log.failed", "error": type(error).__name__})

    def _line(self, event: Event) -> str:
        name, level = str(event.pop("event", "")), str(event.pop("level", "info"))
        failure = _traceback(event.pop("exc_info", None))
        event.pop("stack_info", None)
        cleaned: dict[str, Any] = {"at": _now(), "level": level, "event": self._cleaner.name(name).text}
        cleaned.update(self._cleaner.fields(event, taken=cleaned))
        if failure:
            cleaned["traceback"] = self._cleaner.lines(failure, _TRACEBACK_CHARS)
        return fit(cleaned, self._render, LINE_BYTES)

    def write(self, line: str) -> None:
        """Write one line; a closed or broken stderr is no reason to stop."""
        with contextlib.suppress(OSError, ValueError):
            data = line.encode("utf-8", "backslashreplace") + b"\n"
            raw = getattr(self._stream, "buffer", None)
            if isinstance(raw, io.BufferedIOBase):
                raw.write(data)
            else:
                self._stream.write(data.decode())
            self._stream.flush()


class LibraryHandler(logging.Handler):
    """Brings lines of the standard logging module into the same form, at a bounded rate per kind of message."""

    def __init__(self, line: Line, mono: Callable[[], float] | None = None) -> None:
        super().__init__()
        self._line = line
        self._limit = LogLimit(per_min=_LIBRARY_LINES_PER_MIN, mono=mono)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless its kind has used up its lines of this minute."""
        try:
            held_back = self._limit.passes((record.name, record.levelno, str(record.msg)[:200]))
            if held_back is None:
                return
            event: Event = {
                "event": "library.logged",
                "level": record.levelname.lower(),
                "library": record.name,
                "detail": _detail(record),
                "exc_info": record.exc_info,
            }
            if held_back:
                event["suppressed"] = held_back
            self._line.write(self._line(None, "", event))
        except Exception:  # noqa: S110 - the caller's work matters more than its log line
            pass


def json_line(event: dict[str, Any]) -> str:
    """One JSON object."""
    return orjson.dumps(event).decode()


def console_line(event: dict[str, Any]) -> str:
    """Time, level, event and fields; a traceback follows, indented so that it cannot pass for a line of its own."""
    fields = dict(event)
    at, level, name = fields.pop("at")[11:23], fields.pop("level"), fields.pop("event")
    failure = fields.pop("traceback", "")
    line = f"{at} {level:<7} {name}"
    if fields:
        line += " " * max(1, 28 - len(name)) + " ".join(f"{key}={_plain(value)}" for key, value in fields.items())
    return line + "".join(f"\n    | {each}" for each in failure.splitlines())


def fit(event: dict[str, Any], render: Callable[[dict[str, Any]], str], most_bytes: int) -> str:
    """The rendered event; its longest parts are cut until it is at most `most_bytes` long."""
    line = render(event)
    if len(line) * 4 <= most_bytes:
        return line
    longest = most_bytes
    while len(line.encode("utf-8", "backslashreplace")) > most_bytes and longest > _SHORTEST_CUT:
        longest //= 2
        event = {key: _cut(value, longest) for key, value in event.items()}
        event["cut"] = True
        line = render(event)
    if len(line.encode("utf-8", "backslashreplace")) <= most_bytes:
        return line
    return render({key: event[key] for key in ("at", "level", "event")} | {"cut": True})


def _cut(value: object, longest: int) -> object:
    if isinstance(value, str):
        return value if len(value) <= longest else value[:longest] + "…"
    if isinstance(value, dict | list):
        text = orjson.dumps(value).decode()
        return value if len(text) <= longest else text[:longest] + "…"
    return value


def _plain(value: object) -> str:
    if isinstance(value, str) and value and not set(value) & set(" \"'="):
        return value
    return orjson.dumps(value).decode()


def _detail(record: logging.LogRecord) -> str:
    try:
        return record.getMessage().rstrip()
    except Exception:
        return str(record.msg)


def _traceback(info: object) -> str:
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if not isinstance(error, BaseException):
        return ""
    try:
        return "".join(traceback.format_exception(error, limit=-8)).rstrip()
    except Exception:
        return type(error).__name__


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _writer_factory(line: Line) -> Callable[..., object]:
    class Writer:
        """What structlog calls with the finished line, by any of the level names."""

        def msg(self, text: str) -> None:
            line.write(text)

        debug = info = warning = error = critical = exception = log = fatal = failure = err = msg

    return lambda *_: Writer()
