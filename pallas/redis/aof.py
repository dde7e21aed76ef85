"""The end of an append-only file that a power loss left damaged.

Valkey itself ignores an incomplete last command, but refuses to start over a tail of garbage, such as the zeros some
file systems leave. Decides where the readable part ends; cuts only a small tail and keeps what it cuts. A file in
which whole commands follow the damage is never touched: dropping them would forget decided messages.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

MAX_CUT = 4 * 1024 * 1024
"""Bytes of a tail that may be cut: what `appendfsync everysec` can leave unwritten, with room."""

_COMMAND = re.compile(rb"\*\d{1,7}\r\n\$\d{1,9}\r\n")
_MAX_LINE = 64 * 1024
_ZEROS = 1024 * 1024


def cut_damaged_tail(folder: Path) -> int:
    """Cut what follows the last whole command of the newest incremental file in `folder` (`appendonlydir`).

    Returns the number of bytes cut, 0 where nothing may be cut. The tail is kept beside the file as `*.cut-<time>`.
    """
    path = _newest(folder)
    if path is None:
        return 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        readable = _readable(file, size)
        damaged = size - readable
        file.seek(readable)
        tail = file.read(MAX_CUT)
        # One byte on: the damaged command itself may begin like a whole one.
        if damaged == 0 or _COMMAND.search(tail, 1) or (damaged > MAX_CUT and not _only_zeros(file, readable)):
            return 0
        path.with_name(f"{path.name}.cut-{time.time_ns()}").write_bytes(tail)
        file.truncate(readable)
        os.fsync(file.fileno())
    return damaged


def _newest(folder: Path) -> Path | None:
    """The file the server appended to last: the manifest's last of type i."""
    names = [
        fields[1]
        for manifest in sorted(folder.glob("*.manifest"))
        for fields in _manifest_lines(manifest.read_text("utf-8", "replace").splitlines())
        if fields[-1] == "i"
    ]
    path = folder / names[-1] if names else None
    return path if path is not None and path.is_file() else None


def _manifest_lines(lines: Iterable[str]) -> Iterable[list[str]]:
    return (fields for fields in map(str.split, lines) if len(fields) >= 6 and fields[0] == "file")


def _readable(file: BinaryIO, size: int) -> int:
    """The offset up to which `file` is whole commands: `*n`, then n times `$length` and the bytes."""
    good = 0
    while True:
        line = file.readline(_MAX_LINE)
        if line.startswith(b"#") and line.endswith(b"\r\n"):
            good = file.tell()
            continue
        count = _number(line, b"*")
        if count is None or count == 0:
            return good
        for _ in range(count):
            length = _number(file.readline(_MAX_LINE), b"$")
            if length is None or file.tell() + length + 2 > size:
                return good
            file.seek(length, os.SEEK_CUR)
            if file.read(2) != b"\r\n":
                return good
        good = file.tell()


def _number(line: bytes, mark: bytes) -> int | None:
    digits = line[1:-2]
    if line[:1] != mark or line[-2:] != b"\r\n" or not digits.isdigit() or len(digits) > 10:
        return None
    return int(digits)


def _only_zeros(file: BinaryIO, start: int) -> bool:
    file.seek(start)
    while block := file.read(_ZEROS):
        if block.strip(b"\0"):
            return False
    return True
