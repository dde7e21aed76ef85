"""What a Redis URL may say, and that no password in one is ever shown."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.errors import SettingsError
from pallas.redis.url import RedisKind, RedisTarget, parse_url, redact

_HOST = (("h", 6379),)


@pytest.mark.parametrize(
    "url, target",
    [
        ("embedded://", RedisTarget(RedisKind.EMBEDDED)),
        (" memory:// ", RedisTarget(RedisKind.MEMORY)),
        ("redis://h", RedisTarget(RedisKind.SINGLE, _HOST)),
        ("REDIS://h:7000/3", RedisTarget(RedisKind.SINGLE, (("h", 7000),), db=3)),
        ("redis://h/", RedisTarget(RedisKind.SINGLE, _HOST)),
        ("redis://h?db=4", RedisTarget(RedisKind.SINGLE, _HOST, db=4)),
        ("redis://:p%40ss%2F@h", RedisTarget(RedisKind.SINGLE, _HOST, password="p@ss/")),
        ("redis://u%3A:p:q@h", RedisTarget(RedisKind.SINGLE, _HOST, username="u:", password="p:q")),
        ("redis://u:%E5%AF%86@h", RedisTarget(RedisKind.SINGLE, _HOST, username="u", password="密")),
        ("redis://u:p@ss@h", RedisTarget(RedisKind.SINGLE, _HOST, username="u", password="p@ss")),
        ("redis://[::1]:7/1", RedisTarget(RedisKind.SINGLE, (("::1", 7),), db=1)),
        ("redis://[fe80::1%25eth0]", RedisTarget(RedisKind.SINGLE, (("fe80::1%eth0", 6379),))),
        ("redis://my_cache-1.local:1/0", RedisTarget(RedisKind.SINGLE, (("my_cache-1.local", 1),))),
        (
            "rediss://h?tls_ca=/etc/a%20b.pem&tls_cert=c&tls_key=k",
            RedisTarget(RedisKind.SINGLE, _HOST, tls=True, tls_ca="/etc/a b.pem", tls_cert="c", tls_key="k"),
        ),
        ("unix:///run/r.sock", RedisTarget(RedisKind.UNIX, unix_path="/run/r.sock")),
        (
            "unix://u:p@/srv/%E6%95%B0%20x/r.sock?db=2",
            RedisTarget(RedisKind.UNIX, unix_path="/srv/数 x/r.sock", db=2, username="u", password="p"),
        ),
        ("unix:///run/a@b/r.sock", RedisTarget(RedisKind.UNIX, unix_path="/run/a@b/r.sock")),
        (
            "redis+sentinel://a,b:1,[::2]:3/main/5",
            RedisTarget(RedisKind.SENTINEL, (("a", 26379), ("b", 1), ("::2", 3)), service="main", db=5),
        ),
        (
            "redis+sentinel://u:p@a/main?sentinel_username=s&sentinel_password=x%26",
            RedisTarget(
                RedisKind.SENTINEL,
                (("a", 26379),),
                service="main",
                username="u",
                password="p",
                sentinel_username="s",
                sentinel_password="x&",
            ),
        ),
        ("rediss+sentinel://a/m", RedisTarget(RedisKind.SENTINEL, (("a", 26379),), service="m", tls=True)),
        ("redis+cluster://a,b:7", RedisTarget(RedisKind.CLUSTER, (("a", 6379), ("b", 7)))),
        ("rediss+cluster://:p@a/0", RedisTarget(RedisKind.CLUSTER, (("a", 6379),), password="p", tls=True)),
    ],
)
def test_a_url_means_this_target_and_the_target_writes_it_again(url: str, target: RedisTarget) -> None:
    assert parse_url(url) == target
    assert parse_url(target.url_with_secrets()) == target


@pytest.mark.parametrize(
    "url, why",
    [
        ("", "not one of"),
        ("localhost:6379", "not one of"),
        ("http://h", "not one of"),
        ("embedded://x", "nothing after"),
        ("memory:///0", "nothing after"),
        ("redis://", "host name"),
        ("redis:///0", "host name"),
        ("redis://h:", "port"),
        ("redis://h:0", "port"),
        ("redis://h:65536", "port"),
        ("redis://h:6379x", "port"),
        ("redis://h:６３７９", "port"),
        ("redis://::1", "brackets"),
        ("redis://[::1", "brackets"),
        ("redis://[h]", "IPv6"),
        ("redis://[::1]6379", "port"),
        ("redis://a,b", "redis\\+sentinel"),
        ("redis+cluster://a,,b", "host name"),
        ("redis+cluster://a,", "host name"),
        ("redis+cluster://a/1", "database 0 only"),
        ("redis+sentinel://a", "service name"),
        ("redis+sentinel://a//0", "service name"),
        ("redis+sentinel://a/m/x", "database"),
        ("redis://h/x", "database"),
        ("redis://h/-1", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/1?db=2", "twice"),
        ("redis://h?db=1&db=2", "twice"),
        ("redis://h?db=", "empty"),
        ("redis://h?timeout=3", "unknown option"),
        ("redis://h?tls_ca=x", "rediss:// only"),
        ("rediss://h?tls_cert=x", "belong together"),
        ("redis://h?sentinel_password=x", "sentinel_password"),
        ("redis://user@h", "no password"),
        ("redis://:@h", "no password"),
        ("redis://:a b@h", "control characters"),
        ("redis://:a\nb@h", "control characters"),
        ("redis://:50%@h", "%25"),
        ("redis://:%ff@h", "UTF-8"),
        ("redis://:a#b@h", "%23"),
        ("redis://:a/b@h", "percent-encoded"),
        ("redis://:a?b@h", "percent-encoded"),
        ("unix://run/r.sock", "absolute path"),
        ("unix://", "absolute path"),
        ("unix:///", "absolute path"),
        ("unix:///a%00b", "absolute path"),
    ],
)
def test_a_malformed_url_is_refused_with_the_reason(url: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        parse_url(url)


def test_an_error_shows_the_url_without_its_login_and_the_expected_form() -> None:
    with pytest.raises(SettingsError) as caught:
        parse_url("redis+sentinel://admin:hunter2@s1,s2:26380?sentinel_password=hunter3")
    text = str(caught.value)
    assert "redis+sentinel://[hidden]@s1,s2:26380?sentinel_password=[hidden]" in text
    assert "/service" in text
    assert not {"admin", "hunter2", "hunter3"} & set(text.replace(":", " ").replace("@", " ").split())


@pytest.mark.parametrize(
    "url, shown",
    [
        ("redis://u:p@h:1/2", "redis://[hidden]@h:1/2"),
        ("redis://u:p@ss@h:1/2", "redis://[hidden]@h:1/2"),
        ("redis://:a/b?c#d@h:1/2", "redis://[hidden]@h:1/2"),
        ("redis://:nohost", "redis://[hidden]"),
        ("redis://user:notaport", "redis://[hidden]"),
        ("redis://h/secret!path", "redis://h/[hidden]"),
        ("unix://:p@/run/x y.sock?db=1", "unix://[hidden]@/run/x y.sock?db=1"),
        ("valkey://:p@h", "valkey://[hidden]"),
        ("p4ssw0rd", "[hidden]"),
        ("p4ssw0rd://x", "[hidden]"),
    ],
)
def test_redaction_keeps_only_what_is_surely_no_secret(url: str, shown: str) -> None:
    assert redact(url) == shown


@pytest.mark.parametrize(
    "username, shown",
    [("", "unix:///run/x%40y.sock?db=1"), ("u", "unix://[hidden]@/run/x%40y.sock?db=1")],
)
def test_a_socket_shows_no_login_that_nobody_typed(username: str, shown: str) -> None:
    target = RedisTarget(RedisKind.UNIX, unix_path="/run/x@y.sock", username=username, password="hunter2", db=1)
    assert str(target) == shown
    assert "hunter2" in target.url_with_secrets()


_secret = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12).map(lambda text: f"Q7{text}z9X")
_shape = st.sampled_from([
    "redis://{0}:{1}@h:1/0",
    "redis://:{1}@h/x",
    "rediss://{0}:{1}@h?nope=1",
    "unix://{0}:{1}@/run/s.sock",
    "unix://{0}:{1}@run/s.sock",
    "redis+sentinel://{0}:{1}@a,b/main/0?sentinel_password={1}",
    "redis+sentinel://{0}:{1}@a,b",
    "redis+cluster://{0}:{1}@a,b:x",
    "redis://h:{1}",
    "redis://:{1}",
    "redis://h/0?{1}",
    "rediss://h/0?tls_password={1}",
    "{1}",
    "{0}:{1}@h",
])  # fmt: skip


@given(shape=_shape, username=_secret, password=_secret, quoted=st.booleans())
def test_no_secret_appears_in_any_error_or_repr(shape: str, username: str, password: str, quoted: bool) -> None:
    written = [quote(secret, safe="") if quoted else secret for secret in (username, password)]
    url = shape.format(*written)
    shown = [redact(url)]
    try:
        target = parse_url(url)
    except SettingsError as error:
        shown += [str(error), repr(error), str(error.__cause__)]
    else:
        shown += [str(target), repr(target), f"{target!r:.5000}"]
    for text in shown:
        assert "Q7" not in text
        assert "z9X" not in text


@given(username=st.text(max_size=8), password=st.text(min_size=1, max_size=8), db=st.integers(0, 99))
def test_any_login_survives_writing_and_reading(username: str, password: str, db: int) -> None:
    try:
        (username + password).encode()
    except UnicodeEncodeError:
        return
    target = RedisTarget(RedisKind.SINGLE, _HOST, username=username, password=password, db=db)
    assert parse_url(target.url_with_secrets()) == target
