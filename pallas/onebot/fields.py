"""Single values of a OneBot frame: ids, times, short texts, and how each is written back.

An id is exact or refused: never rounded, never empty, never a word that stands for nothing. What only decorates an
event falls back to an empty value instead.
"""

from __future__ import annotations

from typing import Final

from pallas.errors import BadFrame
from pallas.model import Reason

ID_CHARS: Final = 64
WORDS_CHARS: Final = 500
# Words that stand for "no id" once some end has turned its null into text.
_NO_IDS: Final = frozenset({"None", "null", "undefined", "NaN", "nan"})
_DIGITS: Final = 20

_MILLISECONDS: Final = 10**11
_INT64: Final = 2**63
_EXACT_INT: Final = 2**53


class InexactNumber(Exception):
    """A number is beyond 64 bits: the fast JSON parser has rounded it, an exact one must read the frame again."""


def id_of(value: object) -> str:
    """An account, group or user id as a string. Raises BadFrame(bad_id) for what names nobody."""
    if type(value) is int:
        if value > 0:
            return str(value)
    elif type(value) is str:
        if value.isdecimal() and value.isascii() and value[0] != "0" and len(value) <= _DIGITS:
            return value
        value = value.strip()
        if value.isascii() and value.isdigit():
            value = value.lstrip("0")
        elif value.startswith("-") and value[1:].isdigit():
            value = ""
        if value and len(value) <= ID_CHARS and value.isprintable() and value not in _NO_IDS:
            return value
    refuse_inexact(value)
    raise BadFrame(Reason.BAD_ID, f"not an id: {json_type(value)}")


def optional_id(value: object) -> str:
    """An id that an event may lack: "" for missing, zero and negative. Raises BadFrame for another type."""
    if value is None or (type(value) is str and value in {"", "0"}) or (type(value) is int and value <= 0):
        return ""
    return id_of(value)


def message_id_of(value: object) -> str:
    """A message id as a string, "" for the values that ends give when they have none (missing, 0, -1)."""
    if type(value) is int:
        return "" if value in {0, -1} else str(value)
    if value is None:
        return ""
    if type(value) is str:
        value = value.strip()
        if value in {"", "0", "-1"} or value in _NO_IDS:
            return ""
        if len(value) <= ID_CHARS and value.isprintable():
            return value
    refuse_inexact(value)
    raise BadFrame(Reason.BAD_ID, f"not a message id: {json_type(value)}")


def mentioned(value: object) -> tuple[str, ...]:
    """The mentioned account or `all`; nothing where the end names none, which is no reason to lose the message."""
    if value == "all":
        return ("all",)
    try:
        return (id_of(value),)
    except BadFrame:
        return ()


def id_param(value: object) -> object:
    """An id as an action takes it: a number where every end reads it exactly, else a string."""
    if type(value) is str and len(value) < _DIGITS and value.isascii() and value.removeprefix("-").isdigit():
        number = int(value)
        return number if abs(number) <= _EXACT_INT else value
    if type(value) is int and abs(value) > _EXACT_INT:
        return str(value)
    return value


def seconds(value: object) -> int:
    """Unix seconds from seconds or milliseconds; 0 for what is neither."""
    if type(value) is str:
        number = int(value) if len(value) < _DIGITS and value.isascii() and value.isdigit() else 0
    elif type(value) is int or (type(value) is float and abs(value) < _INT64):
        number = int(value)
    else:
        return 0
    if number > _MILLISECONDS:
        number //= 1000
    return number if 0 < number <= _MILLISECONDS else 0


def words(value: object) -> str:
    """A short field of text, cut; numbers as text, "" for everything else."""
    if type(value) is str:
        return value[:WORDS_CHARS]
    return str(value) if type(value) is int else ""


def retcode(value: object) -> int | None:
    """The code of an answer, also where an end writes it as a string; None where there is none."""
    if type(value) is int:
        return value
    if type(value) is str and len(value) < _DIGITS and value.isascii() and value.removeprefix("-").isdigit():
        return int(value)
    return None


def refuse_inexact(value: object) -> None:
    """Raises InexactNumber for a float that the fast JSON parser made of an integer beyond 64 bits."""
    if type(value) is float and abs(value) >= _INT64:
        raise InexactNumber


def protocol_word(value: object) -> str:
    """A word of the protocol for an error text; anything else is only described, for it may be content."""
    if isinstance(value, str) and len(value) <= 32 and value.isascii() and value.replace("_", "").isalnum():
        return value
    return f"is {json_type(value)}"


def json_type(value: object) -> str:
    """What kind of JSON value this is, for error texts that must not show it."""
    if value is None:
        return "missing"
    names = {str: "a string", dict: "an object", list: "an array", bool: "a boolean"}
    return names.get(type(value), "a number")
