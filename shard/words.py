"""The words that the terminal and the hub's pages share, in each language, and which language a terminal gets.

Nothing that prints for people holds sentences of its own: both read these catalogues, which have the same keys. Codes
are keys too (`reason.stale`), so that a code which has no sentence yet is shown as the code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

from pallas.untrusted import visible

LANGUAGES = ("en", "zh-CN")
DEFAULT_LANGUAGE = LANGUAGES[0]

_UNITS = (("days", 86_400), ("hours", 3600), ("minutes", 60))
_LOCALE_NAMES = ("LC_ALL", "LC_MESSAGES", "LANG")


@dataclass(slots=True, frozen=True)
class Catalogue:
    """The words of one language."""

    language: str
    words: Mapping[str, str]

    def text(self, key: str, **fields: object) -> str:
        """The sentence of `key` with `{fields}` filled in; `KeyError` where there is none."""
        return self.words[key].format(**fields)

    def age(self, then_s: float | None, now_s: float) -> str:
        """How long ago that was, in one unit; `—` where it never was."""
        if then_s is None:
            return "—"
        age = max(0, int(now_s - then_s))
        unit, size = next((each for each in _UNITS if age >= 2 * each[1]), ("seconds", 1))
        return self.text(f"age.{unit}", number=age // size)

    def code(self, kind: str, code: str) -> str:
        """The words of a stable code of this kind (`reason`, `state`, `end` …), or the code itself."""
        return self.words.get(f"{kind}.{code}") or visible(code)


def load_words(package: str = "shard") -> dict[str, Catalogue]:
    """Every language's catalogue, read from `<package>/catalog`."""
    return {language: Catalogue(language, _read(package, f"{language}.json")) for language in LANGUAGES}


def terminal_words(locale: str) -> Catalogue:
    """The words of commands, in the language of a locale such as `zh_CN.UTF-8`."""
    language = language_of(locale)
    files = (f"{language}.json", f"terminal.{language}.json")
    return Catalogue(language, {key: text for file in files for key, text in _read("shard", file).items()})


def locale_of(environ: Mapping[str, str]) -> str:
    """The locale that an environment asks for: the first of LC_ALL, LC_MESSAGES and LANG that is set."""
    return next((environ[name] for name in _LOCALE_NAMES if environ.get(name)), "")


def language_of(locale: str) -> str:
    """The language of ours that a locale such as `zh_CN.UTF-8` means; the default where it is none of them."""
    primary = locale.replace("-", "_").partition("_")[0].partition(".")[0].lower()
    return next((each for each in LANGUAGES if each.partition("-")[0] == primary), DEFAULT_LANGUAGE)


def _read(package: str, file: str) -> dict[str, str]:
    words: dict[str, str] = json.loads((resources.files(package) / "catalog" / file).read_text("utf-8"))
    return words
