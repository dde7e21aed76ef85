"""What the JSON API says: facts with their times, ids as strings, and plainly when Redis cannot be seen."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import structlog

from pallas.errors import PallasError, RedisUnavailable, ReplyError, ReplyUnknown
from shard.view import BotReason, BotState, Counters, EndedBook, Readiness, WorkerBook
from tests.web.cluster import TOKEN, Cluster, HandClock, books, bot, dead_row, hub, operator, shard, visitor
from webui.view import Reading

CANARY = "redis://user:password-canary@10.0.0.1"


async def get(cluster: Cluster, path: str, clock: HandClock | None = None) -> tuple[int, dict[str, object]]:
    async with operator(hub(cluster, clock=clock)[0]) as client:
        answer = await client.get(path)
    return answer.status_code, answer.json()


async def test_bots_come_worst_first_with_counts_and_ids_as_strings() -> None:
    clock = HandClock()
    cluster = Cluster()
    cluster.bot_rows = [
        bot("9007199254740993", at=clock.now),
        bot("10002", at=clock.now, state=BotState.UNKNOWN, reason=BotReason.SHARD_LAPSED),
        bot("10001", at=clock.now, state=BotState.OFFLINE, reason=BotReason.LINK_CLOSED, heartbeat_online=None),
    ]
    status, body = await get(cluster, "/api/v1/bots", clock)
    assert status == 200
    assert (body["as_of"], body["served_at"]) == (clock.now, clock.now)
    assert body["counts"] == {"online": 1, "offline": 1, "unknown": 1}
    rows = body["bots"]
    assert isinstance(rows, list)
    assert [row["self_id"] for row in rows] == ["10001", "10002", "9007199254740993"]
    assert [row["reason"] for row in rows] == ["link_closed", "shard_lapsed", "connected"]
    assert rows[0]["heartbeat_online"] is None
    assert {type(row["shard_id"]) for row in rows} == {str}


async def test_nickname_of_a_stranger_is_short_and_shows_what_it_hides() -> None:
    cluster = Cluster()
    nickname = "<img src=x>\u202e\x00\n\ud800" + "长" * 10_000
    cluster.bot_rows = [bot("1", at=0, nickname=nickname)]
    _, body = await get(cluster, "/api/v1/bots")
    rows = body["bots"]
    assert isinstance(rows, list)
    shown = rows[0]["nickname"]
    assert shown.startswith("<img src=x>\\u202e\\u0000\\u000a\\ud800长")
    assert len(shown) <= 64
    assert shown.endswith("…")


@pytest.mark.parametrize(
    "address, url",
    [
        ("127.0.0.1:8090", "ws://127.0.0.1:8090/onebot/v11/ws"),
        ("0.0.0.0:8090", "ws://machine-a:8090/onebot/v11/ws"),
        ("[::]:8090", "ws://machine-a:8090/onebot/v11/ws"),
        ("[fd00::1]:8090", "ws://[fd00::1]:8090/onebot/v11/ws"),
    ],
)
async def test_shards_say_where_a_protocol_end_connects(address: str, url: str) -> None:
    cluster = Cluster()
    cluster.shard_rows = [shard("10", at=0), shard("2", at=0, address=address)]
    status, body = await get(cluster, "/api/v1/shards")
    rows = body["shards"]
    assert status == 200
    assert isinstance(rows, list)
    assert [row["shard_id"] for row in rows] == ["2", "10"]
    assert rows[0]["connect_url"] == url
    assert rows[0]["counters"]["copies_by"] == {"same_worker": 4}
    assert rows[0]["counters"]["difference"] == 0


async def test_books_add_up_over_the_workers() -> None:
    status, body = await get(Cluster(), "/api/v1/books")
    assert status == 200
    assert (body["balanced"], body["difference"], body["unaccounted"]) == (True, 0, 0)
    total, ended = body["total"], body["ended"]
    assert isinstance(total, dict)
    assert isinstance(ended, dict)
    assert total["arrived"] == 3040 == total["refused"] + total["copies"] + total["ignored"] + total["distinct"]
    assert total["copies_by"] == {"other_shard": 690, "replay": 10, "same_worker": 1300}
    assert ended["distinct"] == 925
    assert ended["dropped_by"] == {"handler_error": 17}


async def test_books_that_are_off_in_both_directions_do_not_cancel_out() -> None:
    cluster = Cluster()
    workers = (
        WorkerBook("0", 1, Counters(arrived=5, distinct=3, running=3)),
        WorkerBook("1", 1, Counters(arrived=3, distinct=5, running=5)),
    )
    cluster.the_books = type(books())(as_of=1.0, workers=workers, ended=EndedBook(distinct=8, handled=7), unaccounted=4)
    _, body = await get(cluster, "/api/v1/books")
    assert (body["balanced"], body["difference"], body["unaccounted"]) == (False, 5, 4)


async def test_the_latest_of_the_dead_stand_beside_the_books_and_all_of_them_have_a_path_of_their_own() -> None:
    clock, cluster = HandClock(), Cluster()
    cluster.dead_rows = [dead_row(at=clock.now - number, epoch=number) for number in range(30)]
    cluster.dead_rows[1] = dead_row(at=clock.now, reason="holder_lost", cause="holder_died", bot_id="", handler="")
    async with operator(hub(cluster, clock=clock)[0]) as client:
        books, dead = (await client.get("/api/v1/books")).json(), (await client.get("/api/v1/dead")).json()
        few = (await client.get("/api/v1/dead?limit=3")).json()
        wrong = [await client.get(f"/api/v1/dead?limit={limit}") for limit in ("", "-1", "x", "1e3", "9" * 5000, "²")]
    assert (books["dead_kept"], books["dead_listed"]) == (30, dead["dead"][:20])
    assert (dead["as_of"], dead["served_at"], dead["total"], len(dead["dead"])) == (clock.now, clock.now, 30, 30)
    assert (few["total"], few["dead"]) == (30, dead["dead"][:3])
    assert dead["dead"][0] == {
        "at": clock.now - 90,
        "said_at": clock.now - 120,
        "reason": "sent_unknown",
        "cause": "no_answer",
        "group_id": "700100200",
        "shard_id": "0",
        "epoch": 0,
        "bot_id": "10001",
        "handler": "ping",
    }
    assert (dead["dead"][1]["reason"], dead["dead"][1]["bot_id"]) == ("holder_lost", "")
    assert {(answer.status_code, answer.json()["error"]["code"]) for answer in wrong} == {(400, "bad_request")}


async def test_what_outsiders_wrote_into_the_list_of_the_dead_is_short_and_shows_what_it_hides() -> None:
    hostile = "<b>\u202e\x1b[2J\ud800" + "长" * 5000
    cluster = Cluster()
    names = ("cause", "group_id", "shard_id", "bot_id", "handler")
    cluster.dead_rows = [dead_row(at=0, **dict.fromkeys(names, hostile))]
    _, body = await get(cluster, "/api/v1/dead")
    rows = body["dead"]
    assert isinstance(rows, list)
    for name in names:
        assert rows[0][name].startswith("<b>\\u202e\\u001b[2J\\ud800长")
        assert len(rows[0][name]) <= 64


async def test_each_worker_says_what_it_took_over_gave_back_and_has_in_hand() -> None:
    _, body = await get(Cluster(), "/api/v1/books")
    workers, total = body["workers"], body["total"]
    assert isinstance(workers, list)
    assert isinstance(total, dict)
    assert (workers[0]["released_by"], workers[0]["standby"], workers[1]["taken_over"]) == ({"lease_lost": 2}, 4, 2)
    assert total["distinct"] + total["taken_over"] == total["outcomes"] + total["released"] + total["running"] == 927
    assert (total["held_difference"], total["orphans_by"]) == (0, {"holder_lost": 1})


async def test_a_message_that_a_worker_lost_sight_of_is_an_imbalance() -> None:
    cluster = Cluster()
    worker = WorkerBook("0", 1, Counters(arrived=5, distinct=5, outcomes={"handled": 4}))
    cluster.the_books = replace(books(), workers=(worker,), ended=EndedBook(distinct=5, handled=5))
    _, body = await get(cluster, "/api/v1/books")
    assert (body["balanced"], body["difference"]) == (False, 1)


async def test_buckets_that_are_off_in_both_directions_do_not_cancel_out() -> None:
    cluster = Cluster()
    cluster.the_books = replace(books(), workers=(), ended=EndedBook(distinct=5, handled=5, off=4))
    _, body = await get(cluster, "/api/v1/books")
    assert (body["balanced"], body["difference"]) == (False, 4)


@pytest.mark.parametrize("path", ["/api/v1/bots", "/api/v1/shards", "/api/v1/books", "/api/v1/dead"])
@pytest.mark.parametrize(
    "problem",
    [RedisUnavailable(CANARY), ReplyUnknown(CANARY), ReplyError("OOM " + CANARY)],
    ids=["no connection", "no reply", "refusal"],
)
async def test_says_503_with_the_last_known_facts_while_redis_is_away(path: str, problem: PallasError) -> None:
    clock = HandClock()
    cluster = Cluster()
    cluster.bot_rows, cluster.shard_rows = [bot("1", at=clock.now)], [shard("0", at=clock.now)]
    async with operator(hub(cluster, clock=clock)[0]) as client:
        seen_at, seen = clock.now, (await client.get(path)).json()
        cluster.broken = problem
        clock.now += 10
        failed_at = clock.now
        await client.get(path)
        clock.now += 20
        answer = await client.get(path)
        assert answer.status_code == 503
        body = answer.json()
        assert body["error"]["code"] == "redis_unavailable"
        assert "pallas doctor" in body["error"]["hint"]
        assert (body["since"], body["served_at"]) == (failed_at, clock.now)
        assert body["last_known"].pop("as_of") == seen_at == seen.pop("as_of")
        assert body["last_known"].items() <= seen.items()
        assert "canary" not in answer.text
        cluster.broken = None
        clock.now += 5
        cluster.the_books = books(clock.now)
        assert (await client.get(path)).json()["as_of"] == clock.now


async def test_says_503_without_facts_where_there_never_were_any() -> None:
    cluster = Cluster()
    cluster.broken = RedisUnavailable(CANARY)
    status, body = await get(cluster, "/api/v1/bots")
    assert (status, body["last_known"]) == (503, None)


async def test_redis_that_hangs_is_given_up_and_asked_once_for_everybody() -> None:
    cluster, clock = Cluster(), HandClock()
    cluster.stuck = True
    reading = Reading("bots", cluster.bots, clock, limit_s=0.05)
    looks = await asyncio.gather(*(reading.look() for _ in range(50)))
    assert {look.blind_since for look in looks} == {clock.now}
    assert cluster.reads == 1


async def test_many_pages_are_one_reader() -> None:
    clock, cluster = HandClock(), Cluster()
    async with operator(hub(cluster, clock=clock)[0]) as client:
        await asyncio.gather(*(client.get("/api/v1/bots") for _ in range(20)))
        assert cluster.reads == 1
        clock.now += 0.6
        await client.get("/api/v1/bots")
    assert cluster.reads == 2


async def test_unexpected_error_is_answered_without_its_text_and_logged() -> None:
    cluster = Cluster()
    cluster.broken = ValueError(CANARY)
    with structlog.testing.capture_logs() as logs:
        status, body = await get(cluster, "/api/v1/bots")
    assert status == 500
    assert "canary" not in str(body)
    assert "http.failed" in {entry["event"] for entry in logs}


async def test_unknown_paths_and_methods_are_errors_of_the_same_shape() -> None:
    async with operator(hub(Cluster())[0]) as client:
        missing, wrong = await client.get("/api/v1/nothing"), await client.delete("/api/v1/bots")
        page = await client.get("/nothing", headers={"Accept": "text/html"})
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "wrong_method")
    assert (page.status_code, "There is no such page" in page.text) == (404, True)


async def test_health_tells_life_from_readiness_without_sign_in() -> None:
    clock, cluster = HandClock(), Cluster()
    async with visitor(hub(cluster, clock=clock)[0]) as client:
        headers = {"Host": "hub:8088"}
        assert (await client.get("/readyz", headers=headers)).json()["ready"] is True
        cluster.readiness = Readiness(ready=False, reason="foreign_deployment", round_trip_ms=None)
        clock.now += 1
        answer = await client.get("/readyz", headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (503, "foreign_deployment")
        cluster.broken = RedisUnavailable(CANARY)
        clock.now += 1
        answer = await client.get("/readyz", headers=headers)
        assert (answer.status_code, answer.json()["reason"]) == (503, "redis_unavailable")
        alive = await client.get("/healthz", headers=headers)
        assert (alive.status_code, alive.json()) == (200, {"alive": True})


async def test_access_log_holds_neither_codes_nor_tokens() -> None:
    app, auth = hub(Cluster())
    code = auth.issue_link()
    with structlog.testing.capture_logs() as logs:
        async with visitor(app) as client:
            await client.get(f"/signin?code={code}")
            await client.post("/signin", data={"code": code}, headers={"Origin": "http://127.0.0.1:8088"})
            await client.get(f"/api/v1/bots?token={TOKEN}", headers={"Authorization": f"Bearer {TOKEN}"})
            await client.get("/x%0d%0a\u202e" + "y" * 5000)
    written = str(logs)
    assert [entry["status"] for entry in logs] == [200, 303, 200, 404]
    assert code not in written
    assert TOKEN not in written
    assert auth.cookie_name not in written
    assert "\\u000d\\u000a\\u202e" in logs[-1]["path"]
    assert len(logs[-1]["path"]) <= 200
