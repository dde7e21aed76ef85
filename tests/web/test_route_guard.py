"""Every route there is, now or later, refuses whoever proved nothing and whatever another site started."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from tests.web.cluster import TOKEN, Cluster, hub, operator, visitor

OPEN = {"/healthz", "/readyz", "/signin", "/static"}
DEAD = {"/dead", "/api/v1/dead"}


def leaves(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of every route, as the application itself lists them."""
    found: list[tuple[str, str]] = []
    pending = list(app.routes)
    while pending:
        route = pending.pop()
        inner = getattr(route, "routes", None)
        # FastAPI keeps an included router whole; its routes are what can be asked for.
        router = getattr(route, "original_router", None)
        if isinstance(route, Mount):
            found.append(("GET", route.path))
        elif router is not None:
            pending.extend(router.routes)
        elif inner:
            pending.extend(inner)
        else:
            found.extend((method, route.path) for method in route.methods or ())  # type: ignore[attr-defined]
    return sorted(set(found))


ROUTES = leaves(hub(Cluster())[0])
GUARDED = [(method, path) for method, path in ROUTES if path not in OPEN]


def test_route_table_holds_what_the_hub_is_known_to_answer() -> None:
    paths = {path for _, path in ROUTES}
    assert paths >= OPEN | {"/", "/bots", "/api/v1/bots", "/api/v1/shards", "/api/v1/books", "/metrics"} | DEAD


@pytest.mark.parametrize("method, path", GUARDED)
async def test_answers_whoever_has_the_token(method: str, path: str) -> None:
    async with operator(hub(Cluster())[0]) as client:
        assert (await client.request(method, path)).status_code in {200, 303}


@pytest.mark.parametrize("method, path", GUARDED)
@pytest.mark.parametrize("accept", ["application/json", "text/html"])
async def test_refuses_a_visitor_who_proved_nothing(method: str, path: str, accept: str) -> None:
    cluster = Cluster()
    async with visitor(hub(cluster)[0]) as client:
        answer = await client.request(method, path, headers={"Accept": accept})
    assert answer.status_code == 401
    assert cluster.reads == 0
    if accept == "text/html" and not path.startswith("/api/"):
        assert "pallas hub --new-link" in answer.text
    else:
        assert answer.json()["error"]["code"] == "not_signed_in"


@pytest.mark.parametrize("method, path", GUARDED)
@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ],
    ids=["origin", "null origin", "other port", "cross-site", "same-site navigation"],
)
async def test_refuses_what_another_site_started_even_with_proof(
    method: str, path: str, foreign: dict[str, str]
) -> None:
    cluster = Cluster()
    async with operator(hub(cluster)[0]) as client:
        answer = await client.request(method, path, headers=foreign)
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "cross_site"
    assert cluster.reads == 0


@pytest.mark.parametrize("method, path", GUARDED)
async def test_refuses_a_host_name_that_is_not_ours(method: str, path: str) -> None:
    app, auth = hub(Cluster())
    cookie = auth.redeem(auth.issue_link()) or ""
    async with visitor(app, cookies={auth.cookie_name: cookie}) as client:
        answer = await client.request(method, path, headers={"Host": "evil.example:8088"})
    assert answer.status_code == 421
    assert answer.json()["error"]["code"] == "unknown_host"


@pytest.mark.parametrize("path", ["/api/v1/nothing", "/docs", "/openapi.json", "/static/../api/v1/bots", "//bots"])
async def test_hides_which_paths_exist_from_strangers(path: str) -> None:
    cluster = Cluster()
    async with visitor(hub(cluster)[0]) as client:
        answer = await client.get(path)
    assert answer.status_code in {401, 404}
    assert cluster.reads == 0


async def test_guards_a_route_that_is_added_later() -> None:
    app, _ = hub(Cluster())

    @app.get("/later")
    async def later() -> PlainTextResponse:
        return PlainTextResponse("secret")

    async with visitor(app) as client:
        assert (await client.get("/later")).status_code == 401


async def test_sign_in_form_of_another_site_is_refused() -> None:
    app, auth = hub(Cluster())
    async with visitor(app) as client:
        answer = await client.post(
            "/signin", data={"code": auth.issue_link()}, headers={"Origin": "http://evil.example"}
        )
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


async def test_sign_in_link_may_be_followed_from_another_site() -> None:
    app, auth = hub(Cluster())
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with visitor(app) as client:
        answer = await client.get(f"/signin?code={auth.issue_link()}", headers=followed)
    assert answer.status_code == 200


async def test_hub_behind_a_proxy_is_reached_by_its_configured_name() -> None:
    app, auth = hub(Cluster(), hosts=["Bots.example"])
    cookie = auth.redeem(auth.issue_link()) or ""
    async with visitor(app, cookies={auth.cookie_name: cookie}) as client:
        headers = {"Host": "bots.example", "Origin": "https://bots.example"}
        assert (await client.get("/api/v1/bots", headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["", "[", "127.0.0.1:x", "a@127.0.0.1", "127.0.0.1/x", "evil.localhost.example"])
async def test_malformed_host_is_refused_and_breaks_nothing(host: str) -> None:
    async with visitor(hub(Cluster())[0]) as client:
        answer = await client.get("/bots", headers={"Host": host, "Accept": "text/html"})
    assert answer.status_code == 421


@pytest.mark.parametrize("path", ["/", "/bots", "/signin", "/healthz", "/api/v1/bots", "/nothing"])
async def test_every_answer_forbids_framing_foreign_scripts_and_keeping(path: str) -> None:
    async with operator(hub(Cluster())[0]) as client:
        first, second = await client.get(path), await client.get(path)
    policy = first.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert policy != second.headers["content-security-policy"]
    assert first.headers["cache-control"] == "no-store"
    assert first.headers["x-content-type-options"] == "nosniff"


async def test_page_scripts_carry_the_nonce_of_their_answer() -> None:
    async with operator(hub(Cluster())[0]) as client:
        answer = await client.get("/bots")
    nonce = answer.headers["content-security-policy"].split("'nonce-")[1].split("'")[0]
    assert f'nonce="{nonce}" src="/static/bots.js"' in answer.text
    assert "<script>" not in answer.text


async def test_token_is_asked_of_a_scraper_unless_it_is_on_this_machine() -> None:
    app, _ = hub(Cluster())
    async with visitor(app) as far, visitor(app, peer=("127.0.0.1", 5)) as near, operator(app) as known:
        assert (await far.get("/metrics")).status_code == 401
        assert "pallas_hub_canary_total" in (await near.get("/metrics")).text
        assert "pallas_hub_canary_total" in (await known.get("/metrics")).text
        by_proxy = await near.get("/metrics", headers={"X-Forwarded-For": "203.0.113.9"})
        assert by_proxy.status_code == 401
        assert (await near.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}x"})).status_code == 401
