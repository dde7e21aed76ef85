"""The words of the pages in each language, and which language a visitor gets.

Pages and scripts hold no text of their own: both read the same catalogues, which have the same keys. Reason codes
are keys too (`reason.bot.<code>`), so that a code which has no sentence yet is shown as the code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = ("en", "zh-CN")
DEFAULT_LANGUAGE = LANGUAGES[0]

_LONGEST_HEADER = 400


@dataclass(slots=True, frozen=True)
class Catalogue:
    """The words of one language."""

    language: str
    words: Mapping[str, str]

    def text(self, key: str, **fields: object) -> str:
        """The sentence of `key` with `{fields}` filled in; `KeyError` where there is none."""
        return self.words[key].format(**fields)


def load_catalogues() -> dict[str, Catalogue]:
    """Every language's catalogue, read from the package."""
    folder = resources.files("webui") / "catalog"
    return {
        language: Catalogue(language, json.loads((folder / f"{language}.json").read_text("utf-8")))
        for language in LANGUAGES
    }


def negotiate(accept_language: str) -> str:
    """The language an `Accept-Language` header prefers among ours; the default where it names none of them."""
    best, best_weight = DEFAULT_LANGUAGE, 0.0
    for part in accept_language[:_LONGEST_HEADER].split(","):
        tag, _, parameter = part.strip().partition(";")
        language = _ours(tag)
        weight = _weight(parameter)
        if language is not None and weight > best_weight:
            best, best_weight = language, weight
    return best


def _ours(tag: str) -> str | None:
    primary = tag.strip().lower().split("-", 1)[0]
    return next((language for language in LANGUAGES if language.lower().split("-", 1)[0] == primary), None)


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
