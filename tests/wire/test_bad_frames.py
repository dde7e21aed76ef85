"""Frames that cannot be used, on a real socket: counted, the link kept where the protocol allows, the log bounded."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from pallas import demo
from pallas.app import App
from pallas.context import Context
from pallas.model import Reason
from shard.worker import Worker
from tests.support.mini_end import GROUP, Json, MiniEnd, report
from tests.support.shards import assert_balanced, listening
from tests.support.waiting import wait_until

MOST = 65_536
SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def lines() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


def frame(**more: Any) -> str:
    """A message that would be answered, with some fields replaced."""
    return json.dumps({**report("napcat", "900001", "ping bad", 7), **more})


def lacking(name: str) -> str:
    event = json.loads(frame())
    del event[name]
    return json.dumps(event)


def nested(depth: int) -> str:
    return frame(message=[{"type": "node", "data": {"content": "NEST"}}]).replace(
        '"NEST"', "[" * depth + "1" + "]" * depth
    )


async def next_is_answered(end: MiniEnd, number: int = 1) -> None:
    already = len(end.sent)
    await end.say(f"ping {number}", 1000 + number)
    await wait_until(lambda: len(end.sent) > already)
    assert end.sent[already:] == [f"pong {number}"]


KEPT: list[tuple[str | bytes, Reason]] = [
    ("", Reason.NOT_JSON),
    ("{", Reason.NOT_JSON),
    ("hello", Reason.NOT_JSON),
    (frame() + "}", Reason.NOT_JSON),
    (frame(time=float("nan")), Reason.NOT_JSON),
    (frame(time=float("inf")), Reason.NOT_JSON),
    (frame() + "\x00", Reason.NOT_JSON),
    (frame().replace("ping", "ping \x00"), Reason.NOT_JSON),
    ("\ufeff" + frame(), Reason.NOT_JSON),
    (nested(100), Reason.TOO_DEEP),
    (nested(5000), Reason.TOO_DEEP),
    ("[]", Reason.WRONG_TYPE),
    ("5", Reason.WRONG_TYPE),
    ("null", Reason.WRONG_TYPE),
    (f"[{frame()}]", Reason.WRONG_TYPE),
    (frame(message=5), Reason.WRONG_TYPE),
    (frame(message=None), Reason.WRONG_TYPE),
    (frame(message=["ping"]), Reason.WRONG_TYPE),
    (frame(message=[{"type": "text", "data": {"text": ["ping"]}}]), Reason.WRONG_TYPE),
    (frame(message=[{"type": 3, "data": {}}]), Reason.WRONG_TYPE),
    (frame(message=[{"type": "text", "data": {"text": ""}}] * 1001), Reason.TOO_LARGE),
    (frame(post_type="telepathy"), Reason.UNKNOWN_POST_TYPE),
    (frame(post_type=None), Reason.UNKNOWN_POST_TYPE),
    (frame(post_type=["message"]), Reason.UNKNOWN_POST_TYPE),
    (frame(message_type="guild"), Reason.UNKNOWN_POST_TYPE),
    ("{}", Reason.UNKNOWN_POST_TYPE),
    (frame(group_id=0), Reason.BAD_ID),
    (frame(group_id=None), Reason.BAD_ID),
    (frame(group_id=""), Reason.BAD_ID),
    (frame(group_id="None"), Reason.BAD_ID),
    (frame(group_id=True), Reason.BAD_ID),
    (frame(group_id=-5), Reason.BAD_ID),
    (frame(group_id=1.5), Reason.BAD_ID),
    (frame(group_id=1e300), Reason.BAD_ID),
    (frame(group_id=[GROUP]), Reason.BAD_ID),
    (lacking("group_id"), Reason.BAD_ID),
    (lacking("user_id"), Reason.BAD_ID),
    (frame(user_id="a\nb"), Reason.BAD_ID),
    (frame(user_id="x" * 65), Reason.BAD_ID),
    (frame(self_id=0), Reason.BAD_ID),
    (frame(message_id={}), Reason.BAD_ID),
    (frame(self_id=900002), Reason.WRONG_ACCOUNT),
]


@pytest.mark.row("F45")
async def test_a_frame_that_cannot_be_used_is_counted_and_its_link_is_kept(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, demo.app) as worker, MiniEnd(worker.url) as end:
        for number, (bad, reason) in enumerate(KEPT):
            before = dict(worker.meters.refused)
            await end.write(bad)
            await next_is_answered(end, number)
            after = {**before, reason: before.get(reason, 0) + 1}
            assert dict(worker.meters.refused) == after, f"{bad[:100]!r} is {reason}"
        assert end.closed is None
        assert worker.meters.handshakes == {"accepted": 1}
        await wait_until(lambda: not worker.claims.unsettled)
        assert_balanced(worker.meters)


@pytest.mark.row("F46")
@pytest.mark.parametrize(
    "bad, code, reason",
    [
        (b'{"post_type": "\xff"}', 1007, Reason.NOT_UTF8),
        (frame().encode().replace(b"ping", b"\xed\xa0\xbd"), 1007, Reason.NOT_UTF8),
        (frame().encode()[:-3] + b"\xe4\xb8", 1007, Reason.NOT_UTF8),
        ("x" * (MOST + 1), 1009, Reason.TOO_LARGE),
        (frame(message="A" * MOST), 1009, Reason.TOO_LARGE),
    ],
)
async def test_a_frame_that_breaks_the_protocol_closes_its_link_with_its_code(
    redis_url: str, tmp_path: Path, bad: str | bytes, code: int, reason: Reason
) -> None:
    async with listening(redis_url, tmp_path, demo.app, max_frame_bytes=MOST) as worker:
        end = await MiniEnd(worker.url).dial()
        await end.write(bad)
        await wait_until(lambda: end.closed is not None)
        assert end.closed is not None
        assert end.closed[0] == code
        await wait_until(lambda: worker.meters.links == 0)
        assert worker.meters.refused == {reason: 1}
        assert_balanced(worker.meters)
        # The end comes back, once, and is served.
        async with end:
            await next_is_answered(end)


async def test_a_close_that_the_end_asked_for_is_no_frame_of_ours_refused(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, demo.app) as worker:
        end = await MiniEnd(worker.url).dial()
        assert end._socket is not None
        await end._socket.close(1009, "your frame is too large")
        await wait_until(lambda: worker.meters.handshakes["accepted"] and not worker.meters.links)
        assert worker.meters.refused == {}


@pytest.mark.parametrize(
    "written, read",
    [
        (r"ping \ud83d!", "pong \ufffd!"),
        (r"ping \udc00\ud83d", "pong \ufffd\ufffd"),
        (r"ping \ud83d\ude00", "pong \U0001f600"),
        (r"ping a\u0000b", "pong a\x00b"),
        (r"ping a\u2028b\u0085\u202ec", "pong a\u2028b\x85\u202ec"),
    ],
)
async def test_text_that_can_be_mended_is_answered(redis_url: str, tmp_path: Path, written: str, read: str) -> None:
    async with listening(redis_url, tmp_path, demo.app) as worker, MiniEnd(worker.url) as end:
        await end.write(frame().replace("ping bad", written))
        await wait_until(lambda: end.sent)
        assert end.sent == [read]
        assert worker.meters.refused == {}
        assert worker.meters.repaired == (r"\ud83d!" in written or r"\udc00" in written)


async def test_ids_beyond_what_the_fast_parser_holds_come_back_exactly(redis_url: str, tmp_path: Path) -> None:
    async with listening(redis_url, tmp_path, demo.app) as worker, MiniEnd(worker.url) as end:
        await end.say("ping 1", 1, group_id=2**64 + 1)
        await wait_until(lambda: end.sent)
        assert end.asked[-1]["params"]["group_id"] == str(2**64 + 1)


async def test_an_end_that_sends_nothing_but_rubbish_costs_a_few_lines(
    redis_url: str, tmp_path: Path, lines: list[Any]
) -> None:
    async with listening(redis_url, tmp_path, demo.app) as worker, MiniEnd(worker.url) as end:
        for number in range(3000):
            await end.write("rubbish of the end " + str(number) if number % 2 else frame(group_id=0))
        await next_is_answered(end)
        assert worker.meters.refused == {Reason.NOT_JSON: 1500, Reason.BAD_ID: 1500}
        refused = [line for line in lines if line["event"] == "frame.refused"]
        assert 2 <= len(refused) <= 20
        assert "rubbish" not in str(refused)
        assert len(lines) < 40


async def test_a_fault_of_ours_costs_neither_the_link_nor_the_next_message(
    redis_url: str, tmp_path: Path, lines: list[Any]
) -> None:
    class Faulty(App):
        """A bot whose routing breaks on some texts."""

        __slots__ = ()

        def route(self, message: Any) -> Any:
            if message.text == "break":
                raise ZeroDivisionError("the words of a person")
            return super().route(message)

    app = Faulty("faulty")

    @app.command("ping")
    async def ping(ctx: Context) -> str:
        return f"pong {ctx.args}"

    async with listening(redis_url, tmp_path, app) as worker, MiniEnd(worker.url) as end:
        for number in range(50):
            await end.say("break", number)
        await next_is_answered(end)
        seen = [line for line in lines if line["event"] == "frame.failed"]
        assert 1 <= len(seen) <= 10
        assert seen[0]["error"] == "ZeroDivisionError"
        assert f"{Path(__file__).name}:" in seen[0]["where"]
        assert all("the words of a person" not in str(line) for line in lines)
        assert end.closed is None


def rss_bytes() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64 + 1, 10**40, 1.5, 1e308, "", "0", "-1", "None", "ping", "x" * 300,
    "\x00", "\u202e", [], {}, [[]], [{}], {"a": {"b": []}}, [1, "2", None], "[CQ:at,qq=all]", "[CQ:", "\U0001f600",
]  # fmt: skip


def mutated(rng: random.Random, events: list[Json]) -> bytes:
    """A frame that is wrong in some way, or by chance is not."""
    event = json.loads(json.dumps(rng.choice(events)))
    for _ in range(rng.randrange(1, 3)):
        target = event
        while True:
            key = rng.choice(list(target))
            if isinstance(target[key], dict) and target[key] and rng.random() < 0.5:
                target = target[key]
                continue
            break
        if rng.random() < 0.2:
            del target[key]
            if not event:
                event = {"x": 1}
        else:
            target[key] = rng.choice(ODD)
    text = json.dumps(event, ensure_ascii=rng.random() < 0.5)
    match rng.randrange(12):
        case 0:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice('{}[]",:\\\x00 e-') + text[at + rng.randrange(2) :]
        case 1:
            text = text[: rng.randrange(len(text))]
        case 2:
            text = "".join(rng.choice('{}[]",:0123ntf\\u') for _ in range(rng.randrange(60)))
        case 3:
            text = text.replace('"text"', '"\\ud800text"', 1)
    return text.encode("utf-8", "replace")


@pytest.mark.row("F45")
@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_a_hundred_thousand_fuzzed_frames_leave_no_trace(
    redis_url: str, tmp_path: Path, lines: list[Any]
) -> None:
    rng = random.Random(20)
    now = int(time.time())
    events: list[Json] = [{**one["event"], "self_id": 900001, "time": now} for one in SAMPLES["events"][::3]]
    events += [json.loads(frame(time=now)), report("gocq", "900001", "ping two", 9)]
    events += [{"status": "ok", "retcode": 0, "data": {"message_id": 5}, "echo": "x"}]
    events += [{"post_type": "notice", "notice_type": "group_recall", "self_id": 900001, "group_id": 5, "time": now}]
    events += [
        {"post_type": "meta_event", "meta_event_type": "heartbeat", "self_id": 900001, "status": {"online": True}}
    ]
    pool = [mutated(rng, events) for _ in range(5000)]
    async with listening(redis_url, tmp_path, demo.app, match_entries=2000) as worker, MiniEnd(worker.url) as end:
        await send_fuzz(worker, end, pool, rng, 15_000)
        gc.collect()
        before, lines_before = rss_bytes(), len(lines)
        await send_fuzz(worker, end, pool, rng, 85_000)
        end.asked.clear()
        gc.collect()
        assert rss_bytes() - before < 30 * 2**20
        assert worker.meters.frames > 100_000
        assert sum(worker.meters.refused.values()) > 20_000
        assert len(worker.meters.refused) >= 6
        await end.say("ping 1", 65_000)
        await wait_until(lambda: "pong 1" in end.sent)
        await wait_until(lambda: not (worker.meters.pending or len(worker.runner) or worker.claims.unsettled))
        assert_balanced(worker.meters)
        assert worker.meters.handshakes == {"accepted": 1}
        assert end.closed is None
        assert len(lines) - lines_before < 300
        wrong = {"frame.failed", "task.failed", "handler.failed", "loop.failed"}
        assert [line for line in lines if line["event"] in wrong] == []


async def send_fuzz(worker: Worker, end: MiniEnd, pool: list[bytes], rng: random.Random, number: int) -> None:
    """Write frames, no more than a few thousand ahead of the worker."""
    ahead = 2000
    start = worker.meters.frames
    for sent in range(number):
        fuzzed = rng.choice(pool)
        if sent % 3 == 0:
            fuzzed = fuzzed.replace(b"131077", str(rng.randrange(1, 60_000)).encode())
        await end.write(fuzzed)
        if sent % ahead == 0:
            end.asked.clear()
            await wait_until(reached(worker, start + sent - ahead), 20)
    # Answers to calls count as frames too, so this is reached at the latest when all were read.
    await wait_until(reached(worker, start + number), 20)


def reached(worker: Worker, frames: int) -> Callable[[], bool]:
    return lambda: worker.meters.frames >= frames


def test_the_fuzz_reaches_every_kind_of_refusal_it_can() -> None:
    rng = random.Random(21)
    frames = [mutated(rng, [json.loads(frame())]) for _ in range(2000)]
    assert all(one.decode() is not None for one in frames)
    good = 0
    for one in frames:
        try:
            good += isinstance(orjson.loads(one), dict)
        except orjson.JSONDecodeError:
            continue
    assert 0.4 < good / len(frames) < 0.95
