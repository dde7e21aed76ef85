"""The kinds of values that settings hold, and what each of them refuses.

A validator's text completes "must be …"; it never contains the value, which may be a secret.
"""

from __future__ import annotations

import json
import re
from typing import Annotated

from pydantic import BeforeValidator, SecretStr

REDIS_SCHEMES = (
    "embedded",
    "memory",
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
REDIS_BEGINNINGS = ", ".join(f"{name}://" for name in REDIS_SCHEMES)
"""How an address may begin, for people to read."""

_ADDRESS = re.compile(r"([a-z][a-z0-9+]*)://\S*", re.IGNORECASE)
_TOKEN = re.compile(r"[\x21-\x7e]+")
_DEPLOYMENT = re.compile(r"[A-Za-z0-9-]{8,64}")
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_APP = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_HOST = re.compile(r"[A-Za-z0-9._:%-]{1,255}")
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})(?:\.[A-Za-z0-9-]{1,63})*\.?(?::[0-9]{1,5})?")
_ID = re.compile(r"[^\s\x00-\x1f\x7f-\x9f,]{1,128}")
_NO_ID = frozenset({"0", "none", "null"})
_LIST_BREAK = re.compile(r"[,，\s]+")


class Refused(ValueError):
    """A value of the wrong kind or form."""


def _address(value: object) -> object:
    if not isinstance(value, str):
        raise Refused("must be an address, in quotes")
    text = value.strip()
    match = _ADDRESS.fullmatch(text)
    if match is None or match[1].lower() not in REDIS_SCHEMES:
        raise Refused(f"must begin with one of {REDIS_BEGINNINGS}")
    return text


def _address_or_none(value: object) -> object:
    return "" if isinstance(value, str) and not value.strip() else _address(value)


def _secret(value: object) -> object:
    if value is None or isinstance(value, SecretStr):
        return value
    if not isinstance(value, str):
        raise Refused("must be text, in quotes")
    if not value.strip():
        return None
    if _TOKEN.fullmatch(value.strip()) is None:
        raise Refused("must be printable ASCII without spaces: it travels in HTTP headers")
    return SecretStr(value.strip())


def _ids(value: object) -> object:
    if isinstance(value, str):
        value = _id_list(value)
    if not isinstance(value, list | tuple | set | frozenset):
        raise Refused("must be a list of ids")
    return tuple(dict.fromkeys(_id(item) for item in value))


def _parts(text: str) -> list[str]:
    return [part for part in _LIST_BREAK.split(text) if part]


def _id_list(text: str) -> list[object]:
    if not text.lstrip().startswith("["):
        return list(_parts(text))
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, list):
        raise Refused('must be ids separated by commas, or a JSON array such as ["10001","10002"]')
    return parsed


def _id(item: object) -> str:
    if isinstance(item, bool) or not isinstance(item, int | str):
        raise Refused("must be a list of ids, each a whole number or text")
    text = str(item).strip()
    if _ID.fullmatch(text) is None or text.lower() in _NO_ID or text.startswith("-"):
        raise Refused("must be a list of ids; none may be empty, 0, negative, `none`, or contain spaces")
    return text


def _matching(pattern: re.Pattern[str], text: str) -> BeforeValidator:
    def check(value: object) -> object:
        if not isinstance(value, str) or (value and pattern.fullmatch(value) is None):
            raise Refused(text)
        return value

    return BeforeValidator(check)


def _host(value: object) -> object:
    if not isinstance(value, str) or _HOST.fullmatch(value) is None:
        raise Refused("must be a host name or an IP address to listen on")
    return value


def _host_names(value: object) -> object:
    names = _parts(value) if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise Refused("must be a list of host names")
    for name in names:
        if not isinstance(name, str) or _HOST_NAME.fullmatch(name.strip()) is None:
            raise Refused("must be host names separated by commas, each with its port if it has one, without scheme")
    return tuple(dict.fromkeys(name.strip().lower() for name in names))


def _prefix(value: object) -> object:
    if not isinstance(value, str) or _PREFIX.fullmatch(value) is None:
        raise Refused("must be 1 to 64 letters, digits, dots, dashes or underscores, beginning with a letter or digit")
    return value


def _deployment(value: object) -> object:
    if not isinstance(value, str) or (value and _DEPLOYMENT.fullmatch(value) is None):
        raise Refused("must be 8 to 64 letters, digits or dashes; `uuidgen` prints a good one")
    return value.lower()


def _path(value: object) -> object:
    text = value.rstrip("/") if isinstance(value, str) else ""
    if _PATH.fullmatch(text) is None:
        raise Refused("must be a path such as /onebot/v11/ws")
    return text


def _word(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


Address = Annotated[str, BeforeValidator(_address)]
"""A Redis address; it may hold a password, so it is never shown whole."""
OptionalAddress = Annotated[str, BeforeValidator(_address_or_none)]
Secret = Annotated[SecretStr | None, BeforeValidator(_secret)]
HostNames = Annotated[tuple[str, ...], BeforeValidator(_host_names)]
Ids = Annotated[tuple[str, ...], BeforeValidator(_ids)]
Host = Annotated[str, BeforeValidator(_host)]
Prefix = Annotated[str, BeforeValidator(_prefix)]
DeploymentId = Annotated[str, BeforeValidator(_deployment)]
UrlPath = Annotated[str, BeforeValidator(_path)]
AppPath = Annotated[str, _matching(_APP, "must be module:name, for example my_bot:app")]
Word = BeforeValidator(_word)
"""Lets a choice be written in any case."""
