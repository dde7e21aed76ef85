"""One thing that `pallas doctor` looked at: how it is, and what to do about it.

The English sentences are written where the fault is found; other languages translate them by their code and fields,
and fall back to English, so that a new finding is never hidden by a missing translation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import resources
from typing import TextIO

from shard.table import Ink, Tone, padded, width
from shard.words import DEFAULT_LANGUAGE, Catalogue


class Level(StrEnum):
    """How bad it is: `warn` works and may not be meant, `fail` does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(StrEnum):
    """What was looked at."""

    SETTINGS = "settings"
    FOLDER = "folder"
    REDIS = "redis"
    PREFIX = "prefix"
    HUB = "hub"
    WORKERS = "workers"
    APP = "app"
    TOKEN = "token"  # noqa: S105  (the name of a check)
    LIMITS = "limits"
    SPEED = "speed"


_TONES = {Level.OK: Tone.GOOD, Level.WARN: Tone.WARNING, Level.FAIL: Tone.BAD}


@dataclass(slots=True, frozen=True)
class Finding:
    """What is so, and what to do; `todo` is empty where there is nothing to do."""

    level: Level
    check: Check
    code: str
    """Stable name of what was found."""
    what: str
    todo: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    """What translations fill into their sentences."""

    def as_dict(self) -> dict[str, str | None]:
        """The finding for a program; its sentences are English."""
        return {
            "level": self.level.value,
            "check": self.check.value,
            "code": self.code,
            "what": self.what,
            "todo": self.todo or None,
        }


class Translations:
    """The sentences of findings in one language, by code; `<code>.todo` is what to do."""

    def __init__(self, language: str) -> None:
        self._sentences: dict[str, str] = {}
        if language != DEFAULT_LANGUAGE:
            file = resources.files("shard") / "catalog" / f"doctor.{language}.json"
            self._sentences = json.loads(file.read_text("utf-8"))

    def what(self, finding: Finding) -> str:
        """What was found."""
        return self._filled(finding.code, finding) or finding.what

    def todo(self, finding: Finding) -> str:
        """What to do about it; may be empty."""
        return self._filled(f"{finding.code}.todo", finding) or finding.todo if finding.todo else ""

    def _filled(self, key: str, finding: Finding) -> str:
        return self._sentences.get(key, "").format(**finding.fields)


def exit_code(found: Sequence[Finding]) -> int:
    """1 where something does not work."""
    return int(any(finding.level is Level.FAIL for finding in found))


def listing(found: Sequence[Finding], words: Catalogue, ink: Ink) -> list[str]:
    """The lines for a person: the verdict, then each finding with what to do below it."""
    translations = Translations(words.language)
    levels = {level: words.text(f"level.{level}") for level in Level}
    checks = {check: words.text(f"check.{check}") for check in Check}
    level_cells = max(map(width, levels.values()))
    check_cells = max(width(checks[finding.check]) for finding in found) if found else 0
    margin = " " * (2 + level_cells + 2 + check_cells + 2)
    lines = [_verdict(found, words, ink), ""]
    for finding in found:
        head = ink.paint(padded(levels[finding.level], level_cells), _TONES[finding.level])
        first, *rest = translations.what(finding).splitlines() or [""]
        lines.append(f"  {head}  {padded(checks[finding.check], check_cells)}  {first}")
        lines += [margin + line for line in rest]
        lines += _todo(translations.todo(finding), margin)
    return lines


def print_json(found: Sequence[Finding], stream: TextIO) -> None:
    """One list of findings."""
    stream.write(json.dumps([finding.as_dict() for finding in found], ensure_ascii=True) + "\n")
    stream.flush()


def _todo(text: str, margin: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        yield f"{margin}{'→' if number == 0 else ' '} {line}"


def _verdict(found: Sequence[Finding], words: Catalogue, ink: Ink) -> str:
    faults = sum(finding.level is Level.FAIL for finding in found)
    warnings = sum(finding.level is Level.WARN for finding in found)
    if not faults and not warnings:
        return ink.paint(words.text("doctor.well"), Tone.GOOD)
    parts = []
    if faults:
        parts.append(words.text("doctor.faults" if faults > 1 else "doctor.faults.one", number=faults))
    if warnings:
        parts.append(words.text("doctor.warnings" if warnings > 1 else "doctor.warnings.one", number=warnings))
    said = words.text("verdict.sentence", parts=words.text("list.joint").join(parts))
    return ink.paint(said, Tone.BAD if faults else Tone.WARNING)
