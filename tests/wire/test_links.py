"""Accounts on real sockets: two sockets of one account, answers and calls, and what a closing link leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from pallas.app import App
from pallas.context import Context
from pallas.errors import ActionFailed, NotSent, SendUnknown
from pallas.model import Outcome, Reason
from pallas.redis import Redis
from shard.presence import read_presence
from shard.roster import Account
from shard.worker import Worker
from tests.support.mini_end import Json, MiniEnd
from tests.support.shards import assert_balanced, listening
from tests.support.waiting import wait_until


def bot() -> App:
    app = App("links")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    @app.command("fetch")
    async def fetch(ctx: Context) -> str:
        data = await ctx.call("download_file_stream", file="x")
        return f"got {data['data_type']}"

    return app


async def present(worker: Worker, bot_id: str) -> dict[str, Any] | None:
    redis: Redis = worker._redis
    entries = await read_presence(redis, worker.keys)
    return next((one.record for one in entries if one.bot_id == bot_id), None)


async def account_of(worker: Worker) -> Account:
    """The account, once it is connected."""
    await wait_until(lambda: "900001" in worker.roster)
    account = worker.roster.get("900001")
    assert account is not None
    return account


async def quiet(worker: Worker) -> None:
    await wait_until(lambda: not (worker.meters.pending or len(worker.runner) or worker.claims.unsettled))
    assert_balanced(worker.meters)


@pytest.mark.parametrize("costume", ["lagrange", "gocq"])
@pytest.mark.parametrize("order", [("API", "Event"), ("Event", "API")])
async def test_an_end_with_two_sockets_reports_on_one_and_acts_on_the_other(
    redis_url: str, tmp_path: Path, costume: str, order: tuple[str, str]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, bot()))
        pair = {role: MiniEnd(worker.url, costume, role=role) for role in order}
        for end in pair.values():
            await stack.enter_async_context(end)
        account = await account_of(worker)
        await wait_until(lambda: len(account.links) == 2)
        await pair["Event"].say("ping 1", 1)
        await wait_until(lambda: pair["API"].sent)
        assert pair["API"].sent == ["pong 1"]
        assert pair["Event"].asked == []
        await quiet(worker)
        # Without the socket for actions nothing can be sent, and is not said to have been.
        await pair["API"].hang_up()
        await wait_until(lambda: len(account.links) == 1)
        await pair["Event"].say("ping 2", 2)
        await wait_until(lambda: worker.meters.released[Reason.NO_LINK])
        assert worker.meters.sends["unknown"] == 0
        assert "900001" in worker.roster
        # The message is kept for a while: it is answered once that socket is back.
        back = await stack.enter_async_context(MiniEnd(worker.url, costume, role="API"))
        await wait_until(lambda: back.sent == ["pong 2"], 10)


@pytest.mark.row("F42")
async def test_of_two_links_the_newest_sends_and_a_late_close_of_the_old_one_changes_nothing(
    redis_url: str, tmp_path: Path
) -> None:
    async with listening(redis_url, tmp_path, bot()) as worker, MiniEnd(worker.url) as old:
        account = await account_of(worker)
        new = await MiniEnd(worker.url).dial()
        await wait_until(lambda: len(account.links) == 2)
        await wait_until(lambda: len(new.asked) == 2)
        for end in (old, new, old):
            await end.say("ping 1", 1)
        await wait_until(lambda: new.sent)
        await quiet(worker)
        assert (old.sent, new.sent) == ([], ["pong 1"])
        assert worker.meters.copies == {Reason.REPLAY: 2}
        assert await wait_until(lambda: present(worker, "900001")) is not None

        old.cut()
        await wait_until(lambda: len(account.links) == 1)
        await new.say("ping 2", 2)
        await wait_until(lambda: "pong 2" in new.sent)
        assert "900001" in worker.roster
        # What the close had started has been written before this answer: presence still stands.
        await worker.presence.refresh()
        record = await present(worker, "900001")
        assert record is not None
        assert record["links"] == 1

        await new.hang_up()
        await wait_until(lambda: "900001" not in worker.roster)

        async def is_absent() -> bool:
            return await present(worker, "900001") is None

        await wait_until(is_absent)


async def test_when_the_newest_link_closes_the_older_one_sends(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, bot()) as worker, MiniEnd(worker.url) as old:
        new = await MiniEnd(worker.url).dial()
        account = await account_of(worker)
        await wait_until(lambda: len(account.links) == 2)
        await new.hang_up()
        await wait_until(lambda: len(account.links) == 1)
        await old.say("ping 1", 1)
        await wait_until(lambda: old.sent == ["pong 1"])


async def test_a_hundred_reconnects_leave_one_link_and_one_answer(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, bot()) as worker:
        end = MiniEnd(worker.url)
        for _ in range(100):
            await end.dial()
            await end.hang_up()
        async with end:
            await wait_until(lambda: worker.meters.links == 1)
            await end.say("ping 1", 1)
            await wait_until(lambda: end.sent)
            await quiet(worker)
            assert end.sent == ["pong 1"]
            account = worker.roster.get("900001")
            assert account is not None
            assert (len(account.links), account.reconnects) == (1, 100)


async def test_presence_goes_with_an_account_that_only_looked_in(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, bot()) as worker:
        for _ in range(20):
            end = await MiniEnd(worker.url).dial()
            end.cut()
        await wait_until(lambda: worker.meters.handshakes["accepted"] == 20 and not worker.meters.links)
        passing = ("presence.put", "presence.drop", "link.identify")
        await wait_until(lambda: not any(task.get_name() in passing for task in worker._tasks._running))
        assert await present(worker, "900001") is None


async def test_calls_that_wait_when_the_link_breaks_are_unknown(redis_url: str, tmp_path: Path) -> None:
    def silent(request: Json) -> Json | None:
        return (
            None if request["action"] == "send_group_msg" else {"status": "ok", "retcode": 0, "echo": request["echo"]}
        )

    async with listening(redis_url, tmp_path, bot()) as worker, MiniEnd(worker.url, respond=silent) as end:
        await end.say("ping 1", 1)
        await wait_until(lambda: end.sent)
        end.cut()
        await wait_until(lambda: worker.meters.outcomes[Outcome.DEAD, Reason.SENT_UNKNOWN])
        await quiet(worker)
        assert worker.meters.sends["unknown"] == 1
        with pytest.raises(NotSent, match="900001 has no open link"):
            await worker.calls.call("900001", "send_group_msg", {})


async def test_an_end_that_stops_reading_holds_nobody_and_is_unknown(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, bot(), action_timeout_s=0.3) as worker, MiniEnd(worker.url) as end:
        await wait_until(lambda: len(end.asked) == 2)
        assert end._socket is not None
        end._socket.transport.pause_reading()
        text = "x" * 8_000_000
        for _ in range(3):
            with pytest.raises(SendUnknown):
                await worker.calls.call("900001", "set_group_portrait", {"file": text})
        end._socket.transport.resume_reading()
        await end.say("ping 1", 1)
        await wait_until(lambda: "pong 1" in end.sent, 10)


async def test_answers_with_odd_echoes_are_ignored_and_the_right_one_counts(redis_url: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, bot()))
        end = await stack.enter_async_context(MiniEnd(worker.url, respond=lambda _: None))
        await account_of(worker)
        call = asyncio.create_task(worker.calls.call("900001", "set_group_ban", {"user_id": "5"}))
        await wait_until(lambda: end.asked[-1:] and end.asked[-1]["action"] == "set_group_ban")
        echo = end.asked[-1]["echo"]
        for odd in (1, 1.5, None, True, {"seq": 1}, [echo], "", echo + "0"):
            await end.tell({"status": "ok", "retcode": 0, "data": {"message_id": 13}, "echo": odd})
        await end.tell({"status": "ok", "retcode": 0, "data": {"message_id": 13}})
        await end.say("ping 1", 1)
        await wait_until(lambda: worker.meters.distinct == 1)
        assert not call.done()
        await end.tell({"status": "failed", "retcode": 120, "data": None, "echo": echo})
        with pytest.raises(ActionFailed, match="retcode 120"):
            await call
        assert worker.meters.refused == {}


async def test_a_stream_of_answers_ends_with_its_last_one(redis_url: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, bot()))

        def streaming(request: Json) -> Json | None:
            if request["action"] != "download_file_stream":
                return end.answer(request)
            for index in range(5):
                piece = {"type": "stream", "data_type": "file_chunk", "index": index, "data": "AAAA"}
                kept.append(
                    asyncio.create_task(
                        end.tell(
                            {
                                "status": "ok",
                                "retcode": 0,
                                "data": piece,
                                "echo": request["echo"],
                                "stream": "stream-action",
                            }
                        )
                    )
                )
            last = {"type": "response", "data_type": "file_complete", "total_chunks": 5}
            return {"status": "ok", "retcode": 0, "data": last, "echo": request["echo"], "stream": "stream-action"}

        kept: list[asyncio.Task[None]] = []
        end = MiniEnd(worker.url, respond=streaming)
        await stack.enter_async_context(end)
        await end.say("fetch", 1)
        await wait_until(lambda: end.sent)
        await asyncio.gather(*kept)
        assert end.sent == ["got file_complete"]


async def test_two_accounts_that_answer_at_once_get_no_answer_of_the_other(redis_url: str, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, bot()))
        asked: list[tuple[str, Json]] = []
        ends: dict[str, MiniEnd] = {}
        for account in ("900001", "900002"):

            def respond(request: Json, account: str = account) -> None:
                asked.append((account, request))

            ends[account] = await stack.enter_async_context(MiniEnd(worker.url, self_id=account, respond=respond))
        await wait_until(lambda: len(worker.roster) == 2)
        calls = {
            account: asyncio.create_task(worker.calls.call(account, "get_status", {"who": account})) for account in ends
        }
        await wait_until(lambda: sum(one["action"] == "get_status" for _, one in asked) == 2)
        questions = {account: one for account, one in asked if one["action"] == "get_status"}
        # Each first answers what the other was asked.
        for account, other in (("900001", "900002"), ("900002", "900001")):
            wrong = {"status": "ok", "retcode": 0, "data": "stolen", "echo": questions[other]["echo"]}
            await ends[account].tell(wrong)
        for account, end in ends.items():
            right = {"status": "ok", "retcode": 0, "data": account, "echo": questions[account]["echo"]}
            await end.tell(right)
        assert {account: await call for account, call in calls.items()} == {name: name for name in ends}


async def test_what_an_end_says_of_itself_is_shown_and_its_nickname_is_only_text(
    redis_url: str, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(listening(redis_url, tmp_path, bot()))

        def named(request: Json) -> Json | None:
            data: Any = {"nickname": "n" * 10_000} if request["action"] == "get_login_info" else []
            return {"status": "ok", "retcode": 0, "data": data, "echo": request["echo"]}

        end = await stack.enter_async_context(MiniEnd(worker.url, respond=named))
        await end.tell(end.meta("heartbeat", interval=5000, status={"online": False, "good": True}))
        account = await account_of(worker)
        await wait_until(lambda: account.online is False and account.nickname)
        await worker.presence.refresh()
        record = await present(worker, "900001")
        assert record is not None
        assert (record["online"], len(record["nickname"])) == (False, 200)
        assert json.dumps(record)
