"""Which upgrades of protocol ends are let in: every header variant that the four implementations really send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas.onebot.ends import End
from pallas.onebot.handshake import Handshake, Refusal, Refused, read
from pallas.onebot.link import Role

PATH = "/onebot/v11/ws"
SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))


def ask(headers: Any = (), target: str = PATH, *, token: str | None = None, local: bool = True) -> Handshake | Refused:
    return read(headers, target, token=token, peer_is_loopback=local)


def accepted(verdict: Handshake | Refused) -> Handshake:
    assert isinstance(verdict, Handshake), verdict
    return verdict


def refused(verdict: Handshake | Refused) -> tuple[int, Refusal]:
    assert isinstance(verdict, Refused), verdict
    return verdict.status, verdict.reason


@pytest.mark.parametrize(
    "implementation, end, token",
    [
        ("napcat", End.NAPCAT, None),
        ("llonebot", End.LLONEBOT, "t0ken"),
        ("lagrange", End.LAGRANGE, "t0ken"),
        ("gocq", End.GOCQ, "t0ken"),
    ],
)
def test_each_implementation_is_let_in_with_its_own_headers(implementation: str, end: End, token: str | None) -> None:
    headers = SAMPLES["implementations"][implementation]["reverse_ws_headers"]
    shake = accepted(ask(headers, token=token))
    assert (shake.account, shake.role, shake.end) == (headers["X-Self-ID"], Role.UNIVERSAL, end)


def test_the_version_of_an_end_is_taken_from_its_user_agent_where_it_stands_there() -> None:
    assert accepted(ask({"User-Agent": "LLOneBot/7.0.2"})).version == "7.0.2"
    assert accepted(ask({"User-Agent": "CQHttp/4.15.0"})).version == ""
    assert accepted(ask({"User-Agent": "OneBot/11"})).version == ""


@pytest.mark.parametrize(
    "headers, target",
    [
        ({"Authorization": "Bearer s3cret"}, PATH),
        ({"authorization": "bearer s3cret"}, PATH),
        ({"AUTHORIZATION": "Bearer   s3cret  "}, PATH),
        ({"Authorization": "Token s3cret"}, PATH),
        ({"Authorization": "token s3cret"}, PATH),
        ({}, PATH + "?access_token=s3cret"),
        ({}, PATH + "?a=b&access_token=s3cret"),
        ({}, PATH + "?access_token=s%33cret"),
        ({"Authorization": "Bearer "}, PATH + "?access_token=s3cret"),
        ({}, PATH + "/?access_token=s3cret"),
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_the_right_token_is_accepted_in_every_form(headers: dict[str, str], target: str, *, local: bool) -> None:
    accepted(ask(headers, target, token="s3cret", local=local))


@pytest.mark.parametrize(
    "headers, target, status, reason",
    [
        ({}, PATH, 401, Refusal.NO_TOKEN),
        ({"Authorization": ""}, PATH, 401, Refusal.NO_TOKEN),
        ({"Authorization": "Bearer "}, PATH, 401, Refusal.NO_TOKEN),
        ({"Authorization": "Bearer"}, PATH, 401, Refusal.NO_TOKEN),
        ({"Authorization": "Token "}, PATH, 401, Refusal.NO_TOKEN),
        ({"Authorization": "Basic s3cret"}, PATH, 401, Refusal.NO_TOKEN),
        ({}, PATH + "?access_token=", 401, Refusal.NO_TOKEN),
        ({"Authorization": "Bearer wrong"}, PATH, 403, Refusal.WRONG_TOKEN),
        ({"Authorization": "Bearer s3cret2"}, PATH, 403, Refusal.WRONG_TOKEN),
        ({"Authorization": "Bearer S3CRET"}, PATH, 403, Refusal.WRONG_TOKEN),
        ({"Authorization": "Bearer wrong"}, PATH + "?access_token=s3cret", 403, Refusal.WRONG_TOKEN),
        ({}, PATH + "?access_token=wrong", 403, Refusal.WRONG_TOKEN),
    ],
)
@pytest.mark.parametrize("local", [True, False])
def test_without_the_right_token_nobody_gets_in(
    headers: dict[str, str], target: str, status: int, reason: Refusal, *, local: bool
) -> None:
    assert refused(ask(headers, target, token="s3cret", local=local)) == (status, reason)


@pytest.mark.parametrize("token", ["密码🔑", "pässword", "a+b%20c", "x" * 500])
def test_any_token_works_however_the_server_decoded_its_bytes(token: str) -> None:
    sent = token.encode()
    for decoded in (token, sent.decode("latin-1"), sent.decode("ascii", "surrogateescape")):
        accepted(ask({"Authorization": f"Bearer {decoded}"}, token=token))
    assert refused(ask({"Authorization": "Bearer 密码"}, token=token)) == (403, Refusal.WRONG_TOKEN)


@pytest.mark.parametrize("query", ["a+b", "a%2Bb"])
def test_a_plus_sign_in_a_token_survives_the_query(query: str) -> None:
    accepted(ask({}, f"{PATH}?access_token={query}", token="a+b"))


@pytest.mark.parametrize("token", [None, "", "   "])
def test_without_a_configured_token_only_this_machine_is_let_in(token: str | None) -> None:
    accepted(ask({"Authorization": "Bearer "}, token=token))
    accepted(ask({"Authorization": "Bearer whatever"}, token=token))
    verdict = ask({"Authorization": "Bearer whatever"}, token=token, local=False)
    assert refused(verdict) == (403, Refusal.NOT_LOOPBACK)
    assert isinstance(verdict, Refused)
    assert "PALLAS_ONEBOT_TOKEN" in verdict.hint


@pytest.mark.parametrize("name", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_a_stranger_behind_a_local_proxy_is_not_of_this_machine(name: str) -> None:
    assert refused(ask({name: "203.0.113.9"})) == (403, Refusal.NOT_LOOPBACK)
    accepted(ask({name: "203.0.113.9", "Authorization": "Bearer t"}, token="t"))


def test_a_web_page_cannot_speak_for_an_account_where_no_token_guards() -> None:
    assert refused(ask({"Origin": "https://example.invalid"})) == (403, Refusal.FROM_BROWSER)
    accepted(ask({"Origin": "https://example.invalid", "Authorization": "Bearer t"}, token="t"))


@pytest.mark.parametrize(
    "value, role",
    [
        ("Universal", Role.UNIVERSAL),
        ("universal", Role.UNIVERSAL),
        ("API", Role.API),
        ("Api", Role.API),
        ("Event", Role.EVENT),
        ("EVENT", Role.EVENT),
        ("", Role.UNIVERSAL),
    ],
)
@pytest.mark.parametrize("name", ["X-Client-Role", "x-client-role"])
def test_roles_are_read_in_any_case_and_a_missing_one_is_universal(name: str, value: str, role: Role) -> None:
    assert accepted(ask({name: value})).role is role


def test_the_two_sockets_of_a_split_end_are_told_apart_and_belong_to_one_account() -> None:
    shakes = [accepted(ask({"X-Client-Role": role, "X-Self-ID": "90021"})) for role in ("Api", "Event")]
    assert [(shake.account, shake.role) for shake in shakes] == [("90021", Role.API), ("90021", Role.EVENT)]


def test_an_unknown_role_is_refused() -> None:
    assert refused(ask({"X-Client-Role": "Admin"})) == (400, Refusal.BAD_ROLE)


@pytest.mark.parametrize(
    "value, account", [("90001", "90001"), (" 90001 ", "90001"), ("0090001", "90001"), ("", None), (None, None)]
)
def test_the_account_is_taken_from_the_header_or_left_to_the_first_event(
    value: str | None, account: str | None
) -> None:
    assert accepted(ask({} if value is None else {"X-SELF-ID": value})).account == account


@pytest.mark.parametrize("value", ["0", "-5", "abc", "12a", "１２", "1.5", "9" * 21, "1,2"])
def test_a_malformed_account_is_refused(value: str) -> None:
    assert refused(ask({"X-Self-ID": value})) == (400, Refusal.BAD_ACCOUNT)


def test_two_different_accounts_in_one_request_are_refused_but_the_same_twice_is_one() -> None:
    assert refused(ask([("X-Self-ID", "1"), ("x-self-id", "2")])) == (400, Refusal.BAD_ACCOUNT)
    assert accepted(ask([("X-Self-ID", "1"), ("x-self-id", "1")])).account == "1"


@pytest.mark.parametrize("target", [PATH, PATH + "/", PATH + "?x=1", PATH + "/?x=1"])
def test_the_configured_path_is_served_with_or_without_a_slash(target: str) -> None:
    accepted(ask({}, target))


@pytest.mark.parametrize("target", ["/", "", "/onebot/v11", PATH + "/extra", "/ONEBOT/v11/ws", "?access_token=x"])
def test_another_path_is_refused_before_the_token_is_looked_at(target: str) -> None:
    assert refused(ask({"Authorization": "Bearer wrong"}, target, token="t")) == (404, Refusal.WRONG_PATH)


def test_another_path_can_be_configured() -> None:
    accepted(read({}, "/ws?x", token=None, peer_is_loopback=True, path="/ws/"))


@settings(deadline=None)
@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["Authorization", "X-Self-ID", "X-Client-Role", "User-Agent", "Origin", "x"]),
            st.text(max_size=20),
        ),
        max_size=6,
    ),
    query=st.text("?&=access_token/%+~é\udc80", max_size=30),
    local=st.booleans(),
)
def test_no_request_causes_an_error_or_shows_a_token(
    headers: list[tuple[str, str]], query: str, *, local: bool
) -> None:
    canary = "c4nary-token"
    guess = ("Authorization", "Bearer guess-c4nary")
    verdict = ask([*headers, guess], f"{PATH}?access_token=guess-c4nary&{query}", token=canary, local=local)
    assert isinstance(verdict, Refused)
    assert "c4nary" not in repr(verdict)
    ask(headers, PATH + query, token=None, local=local)


def test_a_user_agent_is_kept_short_and_printable() -> None:
    shake = accepted(ask({"User-Agent": "evil\x1b[31m\n" + "x" * 1000}))
    assert shake.user_agent.startswith("evil?[31m?")
    assert len(shake.user_agent) == 120
