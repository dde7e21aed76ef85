"""What `PALLAS_REDIS_URL` and its like may say, and what they mean.

Decides which kind of server a URL names; connects to nothing. No error, `str` or `repr` made here ever shows a
password, also not one that was typed where a host or port belongs: what cannot be read for sure is hidden.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NoReturn
from urllib.parse import quote, unquote, unquote_to_bytes

from pallas.errors import SettingsError
from pallas.redact import HIDDEN
from pallas.settings_values import REDIS_BEGINNINGS, REDIS_SCHEMES


class RedisKind(StrEnum):
    """How the server is reached."""

    EMBEDDED = "embedded"
    SINGLE = "single"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"
    MEMORY = "memory"


_FORMS = {
    "embedded": "embedded://",
    "memory": "memory://",
    "redis": "redis://[user:password@]host[:6379][/db]",
    "rediss": "rediss://[user:password@]host[:6379][/db][?tls_ca=…&tls_cert=…&tls_key=…]",
    "unix": "unix://[user:password@]/absolute/path[?db=0]",
    "redis+sentinel": "redis+sentinel://[user:password@]host[:26379],host[:26379]/service[/db][?sentinel_password=…]",
    "rediss+sentinel": "rediss+sentinel://host[:26379],host[:26379]/service[/db][?tls_ca=…&sentinel_password=…]",
    "redis+cluster": "redis+cluster://[user:password@]host[:6379],host[:6379]",
    "rediss+cluster": "rediss+cluster://[user:password@]host[:6379],host[:6379][?tls_ca=…]",
}
_PLAIN_KINDS = {
    "embedded": RedisKind.EMBEDDED,
    "memory": RedisKind.MEMORY,
    "redis": RedisKind.SINGLE,
    "unix": RedisKind.UNIX,
    "redis+sentinel": RedisKind.SENTINEL,
    "redis+cluster": RedisKind.CLUSTER,
}
_KINDS = {scheme: _PLAIN_KINDS[scheme.replace("rediss", "redis", 1)] for scheme in REDIS_SCHEMES}
_OTHER_SCHEMES = ("http", "https", "tcp", "valkey")
"""Schemes that people try, and that may be named."""
_TLS_OPTIONS = ("tls_ca", "tls_cert", "tls_key")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
_HOST = re.compile(r"[^\W_]([\w.-]*\w)?")
_SHOWABLE_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(%25[\w.-]+)?\]|[\w.-]+)(:\d{1,5})?", re.ASCII)
_SHOWABLE_PATH = re.compile(r"(/[\w.-]{1,64}){0,2}/?", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNWRITABLE = re.compile(r"[\s\x00-\x1f\x7f]")


@dataclass(slots=True, frozen=True, repr=False)
class RedisTarget:
    """One server, or the group of servers that act as one. Empty strings mean "not given".

    `hosts` are the sentinels or the cluster's first nodes where there are several; IPv6 without brackets.
    """

    kind: RedisKind
    hosts: tuple[tuple[str, int], ...] = ()
    unix_path: str = ""
    service: str = ""
    """The name the sentinels know the primary by."""
    db: int = 0
    username: str = ""
    password: str = ""
    tls: bool = False
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    sentinel_username: str = ""
    sentinel_password: str = ""

    def __str__(self) -> str:
        # Who may open a socket is told by its file; a login without a name there is one that nobody typed.
        is_bare = self.kind is RedisKind.UNIX and not self.username
        return redact((replace(self, password="") if is_bare else self).url_with_secrets())

    def __repr__(self) -> str:
        return f"RedisTarget({self})"

    @property
    def scheme(self) -> str:
        """The scheme `parse_url` reads this target from."""
        scheme = next(scheme for scheme, kind in _PLAIN_KINDS.items() if kind is self.kind)
        return scheme.replace("redis", "rediss", 1) if self.tls else scheme

    def url_with_secrets(self) -> str:
        """The URL that `parse_url` turns into this target again. For files of mode 0600 only, never for logs."""
        login = f"{quote(self.username, safe='')}:{quote(self.password, safe='')}@" if self.password else ""
        where = ",".join(f"[{_zone_quoted(host)}]:{port}" if ":" in host else f"{host}:{port}"
                         for host, port in self.hosts)  # fmt: skip
        options = {name: getattr(self, name) for name in (*_TLS_OPTIONS, *_SENTINEL_OPTIONS) if getattr(self, name)}
        path = ""
        match self.kind:
            case RedisKind.UNIX:
                path = quote(os.fsencode(self.unix_path))
                options = ({"db": str(self.db)} if self.db else {}) | options
            case RedisKind.SINGLE:
                path = f"/{self.db}"
            case RedisKind.SENTINEL:
                path = f"/{quote(self.service, safe='')}/{self.db}"
            case _:
                pass
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items())
        return f"{self.scheme}://{login}{where}{path}{'?' + query if query else ''}"


def parse_url(url: str) -> RedisTarget:
    """Read a Redis URL in any of the forms of `PALLAS_REDIS_URL`.

    Raises SettingsError that shows the URL without its credentials and the form that was expected.
    """
    url = url.strip()
    scheme, mark, rest = url.partition("://")
    scheme = scheme.lower()
    if not mark or scheme not in _KINDS:
        raise SettingsError(f"Redis URL {redact(url)}: not one of {REDIS_BEGINNINGS}")
    kind = _KINDS[scheme]
    if kind in {RedisKind.EMBEDDED, RedisKind.MEMORY}:
        if rest:
            _refuse(url, "takes nothing after ://")
        return RedisTarget(kind)
    if _UNWRITABLE.search(rest):
        _refuse(url, "spaces and control characters must be percent-encoded")
    if _BAD_ESCAPE.search(rest):
        _refuse(url, "a % that starts no escape must be written %25")
    if "#" in rest:
        _refuse(url, "a # must be written %23")
    place, _, query = rest.partition("?")
    authority, slash, path = place.partition("/")
    if "@" in query or ("@" in path and kind is not RedisKind.UNIX):
        _refuse(url, "the characters / ? # @ % in a user name, password or option must be percent-encoded")
    login, at, where = authority.rpartition("@")
    username, password = _login(url, login) if at else ("", "")
    tls = scheme.startswith("rediss")
    options = _options(url, query, kind, tls=tls)
    db, service = "", ""
    if kind is RedisKind.SENTINEL:
        service, _, db = path.partition("/")
        service = _decoded(url, service)
        if not service:
            _refuse(url, "the service name is missing")
    elif kind is not RedisKind.UNIX:
        db = path
    unix_path = ""
    hosts: tuple[tuple[str, int], ...] = ()
    if kind is RedisKind.UNIX:
        unix_path = os.fsdecode(unquote_to_bytes(slash + path))
        if where or len(unix_path) < 2 or "\0" in unix_path:
            _refuse(url, "expects the absolute path of a socket")
    else:
        hosts = _hosts(url, where, 26379 if kind is RedisKind.SENTINEL else 6379)
        if kind is RedisKind.SINGLE and len(hosts) > 1:
            _refuse(url, "several hosts need redis+sentinel:// or redis+cluster://")
    return RedisTarget(
        kind,
        hosts=hosts,
        unix_path=unix_path,
        service=service,
        db=_db(url, db, options.pop("db", ""), kind),
        username=username,
        password=password,
        tls=tls,
        **options,
    )


def redact(url: str) -> str:
    """`url` fit for a log: credentials, secret options and whatever is not surely a host or a path are hidden."""
    scheme, mark, rest = url.strip().partition("://")
    if not mark or scheme.lower() not in _KINDS:
        return f"{scheme.lower()}://{HIDDEN}" if mark and scheme.lower() in _OTHER_SCHEMES else HIDDEN
    # A password may itself hold an unescaped / ? # or @, so everything before the last @ is taken for one.
    _, at, rest = rest.rpartition("@")
    place, _, query = rest.partition("?")
    where, slash, path = place.partition("/")
    shown = f"{HIDDEN}@" if at else ""
    hosts = where.split(",") if where else []
    if scheme.lower() == "unix" and not where:
        return f"unix://{shown}{slash}{path}{_shown_query(query)}"
    if not all(_SHOWABLE_HOST.fullmatch(host) for host in hosts):
        return f"{scheme.lower()}://{shown}{HIDDEN}"
    shown_path = slash + path if _SHOWABLE_PATH.fullmatch(slash + path) else f"/{HIDDEN}"
    return f"{scheme.lower()}://{shown}{where}{shown_path}{_shown_query(query)}"


def _shown_query(query: str) -> str:
    shown = [_shown_option(part) for part in query.split("&") if part]
    return "?" + "&".join(shown) if shown else ""


def _shown_option(part: str) -> str:
    name, _, value = part.partition("=")
    if name in _SENTINEL_OPTIONS:
        return f"{name}={HIDDEN}"
    # An unknown name may be the rest of a password with an unescaped question mark.
    return part if name in _TLS_OPTIONS or (name == "db" and value.isdecimal()) else HIDDEN


def _refuse(url: str, why: str) -> NoReturn:
    scheme = url.partition("://")[0].lower()
    raise SettingsError(f"Redis URL {redact(url)}: {why}; expected {_FORMS[scheme]}")


def _decoded(url: str, text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        pass
    _refuse(url, "percent-encoded bytes must be UTF-8")


def _login(url: str, login: str) -> tuple[str, str]:
    username, colon, password = login.partition(":")
    if not colon or not password:
        _refuse(url, "no password before the @ (a password alone is written :password@)")
    return _decoded(url, username), _decoded(url, password)


def _hosts(url: str, where: str, default_port: int) -> tuple[tuple[str, int], ...]:
    hosts: list[tuple[str, int]] = []
    for place in where.split(","):
        if place.startswith("["):
            host, bracket, tail = place[1:].partition("]")
            host = unquote(host)
            if not bracket or not _is_ipv6(host):
                _refuse(url, "not an IPv6 address in [brackets]")
        else:
            host, colon, port = place.partition(":")
            tail = colon + port
            if ":" in port:
                _refuse(url, "an IPv6 address must stand in [brackets]")
            if not _HOST.fullmatch(host):
                _refuse(url, "a host name is missing or malformed")
        hosts.append((host, _port(url, tail, default_port)))
    return tuple(hosts)


def _port(url: str, tail: str, default: int) -> int:
    if not tail:
        return default
    number = tail[1:]
    if not (tail[0] == ":" and number.isascii() and number.isdigit() and len(number) <= 5 and 0 < int(number) < 65536):
        _refuse(url, "a port must be a number from 1 to 65535")
    return int(number)


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def _zone_quoted(host: str) -> str:
    return host.replace("%", "%25")


def _db(url: str, in_path: str, in_query: str, kind: RedisKind) -> int:
    text = in_path.removesuffix("/") or in_query or "0"
    if in_path and in_query and in_path != in_query:
        _refuse(url, "the database is given twice")
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        _refuse(url, "the database must be a number")
    if kind is RedisKind.CLUSTER and int(text):
        _refuse(url, "a cluster has database 0 only")
    return int(text)


def _options(url: str, query: str, kind: RedisKind, *, tls: bool) -> dict[str, str]:
    known = ["db"]
    if tls:
        known += _TLS_OPTIONS
    if kind is RedisKind.SENTINEL:
        known += _SENTINEL_OPTIONS
    options: dict[str, str] = {}
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if not part:
            continue
        if name not in known:
            hint = " (with rediss:// only)" if name in _TLS_OPTIONS else ""
            named = f"option {name}{hint}" if name in {*_TLS_OPTIONS, *_SENTINEL_OPTIONS} else "an unknown option"
            _refuse(url, f"{named} is not understood here; known are {', '.join(known)}")
        if name in options or not value:
            _refuse(url, f"option {name} is empty or given twice")
        options[name] = _decoded(url, value)
    if bool(options.get("tls_cert")) != bool(options.get("tls_key")):
        _refuse(url, "tls_cert and tls_key belong together")
    return options
