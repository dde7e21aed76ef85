"""What must never be shown is not shown, in whatever form it turns up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas.redact import KnownSecrets, is_body_name, is_secret_name, passwords_in, redact_text

CANARY = "canary-3f9a1c7e5b"


@pytest.mark.parametrize(
    "text",
    [
        f"redis://:{CANARY}@host:6379/0",
        f"redis://me:{CANARY}@host",
        f"cannot reach redis://me:p@{CANARY}/x@host:1/0: refused",
        f"/onebot/v11/ws?access_token={CANARY}&x=1",
        f"GET /ws?x=1&access_token={CANARY} HTTP/1.1",
        f"Authorization: Bearer {CANARY}",
        f"authorization = {CANARY}",
        f"Authorization: Basic {CANARY}",
        f"sent bearer {CANARY}, refused",
        f'{{"access_token": "{CANARY}"}}',
        f"{{'token': '{CANARY}'}}",
        f'{{"password":"a\\"{CANARY}"}}',
        f"PALLAS_HUB_TOKEN={CANARY}",
        f"Cookie: pallas_session={CANARY}",
        f"passwd={CANARY}",
        f"api-key: {CANARY}",
        f"secret_value = {CANARY}",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    assert CANARY not in redact_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "the worker took shard 3",
        "http://127.0.0.1:8088/bots",
        "the token is missing: set one",
        "mail me@example.org",
        "ws://host/onebot/v11/ws?x=1",
    ],
)
def test_what_holds_no_secret_stays_as_it_is(text: str) -> None:
    assert redact_text(text).replace("[hidden]", "set") == text


@pytest.mark.parametrize("text", [f"redis://:{CANARY}@h/0?sentinel_password={CANARY}&db=1", f"(token: {CANARY})"])
def test_what_is_hidden_already_stays_as_it_is(text: str) -> None:
    once = redact_text(text)
    assert CANARY not in once
    assert redact_text(once) == once


def test_a_known_secret_is_hidden_wherever_it_turns_up() -> None:
    secrets = KnownSecrets([CANARY, "", "ok"])
    assert secrets.redact(f"x{CANARY}y ok") == "x[hidden]y ok"


def test_of_two_known_secrets_the_longer_is_hidden_whole() -> None:
    assert KnownSecrets([CANARY, CANARY + "-more"]).redact(f"{CANARY}-more") == "[hidden]"


@pytest.mark.parametrize(
    "url, passwords",
    [
        ("redis://:a%40b@h/0", ("a%40b", "a@b")),
        ("redis://me:p@ss@h", ("p@ss",)),
        ("redis://me@h", ()),
        ("redis://h:6379", ()),
        ("embedded://", ()),
        ("", ()),
    ],
)
def test_the_password_of_an_address_is_found(url: str, passwords: tuple[str, ...]) -> None:
    assert passwords_in(url) == passwords


def test_names_tell_what_a_field_holds() -> None:
    assert all(map(is_secret_name, ("hub_token", "Authorization", "cookie", "PASSWORD", "api_key", "set-cookie")))
    assert not any(map(is_secret_name, ("bot_id", "shard", "reason", "key", "author")))
    assert is_body_name("raw_message")
    assert not is_body_name("reason")


@given(st.text(alphabet="-:='\"@/?& tokensecretpw", max_size=300))
def test_any_text_can_be_redacted(text: str) -> None:
    redact_text(text)


def test_a_hostile_text_costs_no_more_than_its_length() -> None:
    # Grows with the square of the length if a pattern backtracks: minutes instead of milliseconds.
    for part in ("token-", "token ", "://", "a@", "bearer ", 'token="', "secret'=\\", "tokentoken"):
        redact_text(part * (40_000 // len(part)))
