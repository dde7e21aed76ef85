"""Commands that see a deployment through its hub: let in by the data folder, and told clearly what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastapi import FastAPI, Response

from pallas.clock import SystemClock
from pallas.errors import PallasError, RedisUnavailable
from shard.endpoints import Endpoint
from shard.hub_view import HubView
from shard.view import ClusterView
from tests.support.valkey import free_port
from tests.web.cluster import SECRET, TOKEN, Cluster, HandClock, bot, dead_row, hub, served, shard, visitor
from webui.auth import Auth

NOW = 1_800_000_000.0


def view_of(url: str, bearer: Callable[[], str]) -> ClusterView:
    return HubView(Endpoint("hub", 4242, url, url), bearer)


async def test_a_command_sees_what_the_hub_sees() -> None:
    cluster = Cluster()
    cluster.bot_rows = [bot("10001", at=NOW), bot("10002", at=NOW)]
    cluster.shard_rows = [shard("0", at=NOW)]
    cluster.dead_rows = [dead_row(at=NOW - number, shard_id=str(number)) for number in range(30)]
    app, auth = hub(cluster)
    async with served(app) as url:
        view = view_of(url, auth.issue_bearer)
        assert await view.bots() == cluster.bot_rows
        assert await view.shards() == cluster.shard_rows
        assert await view.books() == cluster.the_books
        assert await view.dead() == cluster.dead_rows
        assert await view.ready() == cluster.readiness


@pytest.mark.parametrize("token", ["", TOKEN])
async def test_the_data_folder_lets_a_command_in_with_and_without_a_token(token: str) -> None:
    app, _ = hub(Cluster(), token=token)
    bearer = Auth(SECRET, "whatever the command's own environment says", SystemClock()).issue_bearer()
    async with visitor(app, headers={"Authorization": f"Bearer {bearer}"}) as client:
        assert (await client.get("/api/v1/bots")).status_code == 200


async def test_another_data_folder_does_not() -> None:
    app, _ = hub(Cluster())
    stranger = Auth(b"the secret of quite another data folder", "", SystemClock())
    async with served(app) as url:
        with pytest.raises(PallasError, match=r"does not know this data folder .* --data"):
            await view_of(url, stranger.issue_bearer).bots()


async def test_what_a_command_sends_is_good_for_a_minute_and_for_nothing_else() -> None:
    clock = HandClock()
    app, auth = hub(Cluster(), clock=clock)
    bearer, link = auth.issue_bearer(), auth.issue_link()
    async with visitor(app) as client:

        async def asked(token: str) -> int:
            return (await client.get("/api/v1/bots", headers={"Authorization": f"Bearer {token}"})).status_code

        assert await asked(bearer) == 200
        assert await asked(link) == 401
        assert auth.redeem(bearer) is None
        assert auth.exchange_token(bearer) is None
        clock.now += 59.9
        assert await asked(bearer) == 200
        clock.now += 0.2
        assert await asked(bearer) == 401
        ahead = Auth(SECRET, "", HandClock(clock.now + 3600)).issue_bearer()
        assert await asked(ahead) == 401


async def test_a_hub_that_cannot_see_redis_says_so() -> None:
    cluster = Cluster()
    cluster.broken = RedisUnavailable("away")
    app, auth = hub(cluster)
    async with served(app) as url:
        with pytest.raises(RedisUnavailable, match="Redis cannot be read"):
            await view_of(url, auth.issue_bearer).books()


async def test_a_hub_that_is_gone_is_named_with_what_to_do() -> None:
    view = view_of(f"http://127.0.0.1:{free_port()}", lambda: "x")
    with pytest.raises(PallasError, match=r"the hub \(process 4242\) does not answer .* start it again"):
        await view.bots()


@pytest.mark.parametrize("body", [b"hello", b"[]", b'{"bots": [{"self_id": "1"}]}', b'{"bots": 7}', b"\xff"])
async def test_something_else_on_its_port_is_no_hub(body: bytes) -> None:
    stranger = FastAPI()

    @stranger.get("/api/v1/bots")
    async def bots() -> Response:
        return Response(body)

    async with served(stranger) as url:
        with pytest.raises(PallasError, match="no hub of this version"):
            await view_of(url, lambda: "x").bots()


async def test_a_bearer_follows_no_redirect() -> None:
    asked: list[str] = []
    stranger = FastAPI()

    @stranger.get("/api/v1/bots")
    async def bots() -> Response:
        return Response(b"{}", status_code=302, headers={"Location": "/elsewhere"})

    @stranger.get("/elsewhere")
    async def elsewhere() -> Response:
        asked.append("elsewhere")
        return Response(b"{}")

    async with served(stranger) as url:
        with pytest.raises(PallasError, match="HTTP 302"):
            await view_of(url, lambda: "x").bots()
    assert asked == []
