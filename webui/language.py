"""The words of the pages in each language, and which language a visitor gets.

Pages and scripts hold no text of their own: both read the same catalogues, which have the same keys: the words that
the terminal uses too, and those of the pages. Reason codes are keys too (`reason.bot.<code>`), so that a code which
has no sentence yet is shown as the code.
"""

from __future__ import annotations

from shard.words import DEFAULT_LANGUAGE, LANGUAGES, Catalogue, load_words

_LONGEST_HEADER = 400


def load_catalogues() -> dict[str, Catalogue]:
    """Every language's catalogue, with the words that the terminal uses too."""
    shared, own = load_words(), load_words("webui")
    return {each: Catalogue(each, {**shared[each].words, **own[each].words}) for each in LANGUAGES}


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
