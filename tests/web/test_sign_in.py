"""Who gets a session, for how long, and how often one may guess."""

from __future__ import annotations

import pytest

from tests.web.cluster import HOME, SECRET, TOKEN, Cluster, HandClock, hub, visitor
from webui.auth import Auth
from webui.limiter import SignInLimiter, wait_after

OURS = {"Origin": HOME}


async def test_link_signs_in_once() -> None:
    app, auth = hub(Cluster())
    code = auth.issue_link()
    async with visitor(app) as client:
        shown = await client.get(f"/signin?code={code}")
        assert f'value="{code}"' in shown.text
        entered = await client.post("/signin", data={"code": code}, headers=OURS)
        assert (entered.status_code, entered.headers["location"]) == (303, "/bots")
        assert (await client.get("/api/v1/bots")).status_code == 200
    async with visitor(app) as other:
        again = await other.post("/signin", data={"code": code}, headers=OURS)
        assert again.status_code == 401
        assert "used already" in again.text
        assert "set-cookie" not in again.headers


async def test_looking_at_a_link_does_not_use_it_up() -> None:
    app, auth = hub(Cluster())
    code = auth.issue_link()
    async with visitor(app) as client:
        for _ in range(3):
            assert "set-cookie" not in (await client.get(f"/signin?code={code}")).headers
        assert (await client.post("/signin", data={"code": code}, headers=OURS)).status_code == 303


async def test_session_cookie_is_out_of_reach_of_scripts_and_other_sites() -> None:
    app, auth = hub(Cluster())
    async with visitor(app) as client:
        plain = await client.post("/signin", data={"code": auth.issue_link()}, headers=OURS)
        tls = await client.post(
            HOME.replace("http:", "https:") + "/signin", data={"code": auth.issue_link()}, headers=OURS
        )
    for answer in (plain, tls):
        attributes = answer.headers["set-cookie"].lower().split("; ")
        assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert "secure" not in plain.headers["set-cookie"].lower().split("; ")
    assert "secure" in tls.headers["set-cookie"].lower().split("; ")


async def test_token_signs_a_browser_in_where_one_is_set() -> None:
    app, _ = hub(Cluster())
    async with visitor(app) as client:
        assert 'name="token"' in (await client.get("/signin")).text
        assert (await client.post("/signin", data={"token": TOKEN + "x"}, headers=OURS)).status_code == 401
        assert (await client.post("/signin", data={"token": TOKEN}, headers=OURS)).status_code == 303
        assert (await client.get("/bots")).status_code == 200


async def test_without_a_token_none_is_asked_for_and_none_is_right() -> None:
    app, _ = hub(Cluster(), token="")
    async with visitor(app) as client:
        assert 'name="token"' not in (await client.get("/signin")).text
        assert (await client.post("/signin", data={"token": ""}, headers=OURS)).status_code == 401
        for value in ("Bearer ", "", "Bearer x"):
            assert (await client.get("/api/v1/bots", headers={"Authorization": value})).status_code == 401


def test_link_is_worth_nothing_after_its_time() -> None:
    clock = HandClock()
    auth = Auth(SECRET, "", clock, link_s=900)
    code = auth.issue_link()
    clock.now += 899
    assert auth.redeem(code) is not None
    late = auth.issue_link()
    clock.now += 900
    assert auth.redeem(late) is None


def test_link_of_another_process_with_the_same_folder_is_good_at_a_running_hub() -> None:
    clock = HandClock()
    running = Auth(SECRET, TOKEN, clock)
    clock.now += 60
    assert running.redeem(Auth(SECRET, "", clock).issue_link()) is not None
    assert running.redeem(Auth(b"another folder's secret, long enough", "", clock).issue_link()) is None


def test_used_link_stays_used_over_a_restart() -> None:
    clock = HandClock()
    first = Auth(SECRET, "", clock)
    code = first.issue_link()
    assert first.redeem(code) is not None
    clock.now += 1
    assert Auth(SECRET, "", clock).redeem(code) is None


@pytest.mark.parametrize("code", ["", "x", "é", "A" * 56, "A" * 100_000, "%00", "====", "=" * 56])
def test_made_up_codes_are_no_links(code: str) -> None:
    assert Auth(SECRET, TOKEN, HandClock()).redeem(code) is None


async def test_session_outlives_a_restart_but_not_its_time_nor_a_new_token() -> None:
    clock = HandClock()
    auth = Auth(SECRET, TOKEN, clock, session_s=3600)
    cookie = auth.redeem(auth.issue_link()) or ""

    async def status(token: str, value: str) -> int:
        app, current = hub(Cluster(), clock=clock, token=token)
        async with visitor(app, cookies={current.cookie_name: value}) as client:
            return (await client.get("/api/v1/bots")).status_code

    clock.now += 3599
    assert await status(TOKEN, cookie) == 200
    assert await status("rotated", cookie) == 401
    forged = ("B" if cookie[0] == "A" else "A") + cookie[1:]
    assert await status(TOKEN, forged) == 401
    assert await status(TOKEN, auth.issue_link()) == 401
    clock.now += 1
    assert await status(TOKEN, cookie) == 401


async def test_guessing_is_slowed_down_and_sessions_go_on() -> None:
    clock = HandClock()
    app, auth = hub(Cluster(), clock=clock)
    cookie = auth.redeem(auth.issue_link()) or ""
    async with visitor(app) as client:
        refused = [
            (await client.get("/api/v1/bots", headers={"Authorization": f"Bearer {n}"})).status_code for n in range(400)
        ]
        assert refused.count(401) <= 6
        assert set(refused) == {401, 429}
        right = await client.get("/api/v1/bots", headers={"Authorization": f"Bearer {TOKEN}"})
        assert right.status_code == 429
        assert int(right.headers["retry-after"]) > 0
        assert (await client.post("/signin", data={"token": TOKEN}, headers=OURS)).status_code == 429
        client.cookies.set(auth.cookie_name, cookie)
        assert (await client.get("/api/v1/bots")).status_code == 200
        client.cookies.clear()
        clock.now += 901
        allowed = await client.get("/api/v1/bots", headers={"Authorization": f"Bearer {TOKEN}"})
        assert allowed.status_code == 200


def test_waits_double_up_to_a_quarter_of_an_hour() -> None:
    assert [wait_after(n) for n in (1, 4, 5, 6, 7, 10, 11, 1000)] == [0, 0, 30, 60, 120, 900, 900, 900]


def test_table_of_guessers_is_bounded_and_a_network_is_one_guesser() -> None:
    limiter = SignInLimiter(HandClock())
    for number in range(5000):
        limiter.failed(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}")
    assert len(limiter) == 1024
    for number in range(6):
        limiter.failed(f"2001:db8::{number:x}")
    assert limiter.wait_s("2001:db8::ffff") > 0
    assert limiter.wait_s("2001:db8:0:1::1") == 0
    assert limiter.wait_s("::ffff:10.0.0.1") == limiter.wait_s("10.0.0.1")


async def test_oversized_form_is_no_sign_in() -> None:
    app, auth = hub(Cluster())
    async with visitor(app) as client:
        body = {"code": auth.issue_link(), "filling": "x" * 10_000}
        assert (await client.post("/signin", data=body, headers=OURS)).status_code == 401


def test_secrets_do_not_show_in_a_repr() -> None:
    assert TOKEN not in repr(Auth(SECRET, TOKEN, HandClock()))
