"""Whoever saw a message answers it where its holder dies before the first effect; after it, nobody does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pallas.app import App
from pallas.claim import Verdict
from pallas.clock import SystemClock
from pallas.context import Context
from pallas.faults import Action, Faults, Point
from pallas.model import Outcome, Reason
from shard.report import Report
from shard.standby import Standby
from tests.support.opened import HandClock
from tests.support.proxy import Proxy
from tests.support.shards import Json, Shard, answered, group_message, poke, shards
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

FAST: dict[str, Any] = {
    "lease_s": 0.9,
    "claim_wait_ms": 250,
    "redis_dead_after_ms": 800,
    "standby_look_s": 0.1,
    "orphan_after_s": 2.0,
}
KINDS = pytest.mark.parametrize("seq", [7, None], ids=["by sequence", "by content"])
DONE = {(Outcome.HANDLED, Reason.OK): 1}


class SleepyHost(SystemClock):
    """A host that was asleep: its clocks have gone on, its processes have not."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.slept_s

    def mono(self) -> float:
        return super().mono() + self.slept_s


class SetWatch(SystemClock):
    """A clock whose time of day was put forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s


class Dozing(Faults):
    """The host falls asleep for a while right after the first effect was recorded."""

    def __init__(self, host: SleepyHost) -> None:
        super().__init__(Action.PAUSE, Point.RECORDED)
        self._host = host

    def hit(self, point: Point) -> None:
        super().hit(point)
        if point is Point.RECORDED and self.visits[point] == 1:
            self._host.slept_s += 20


class Gate:
    """A bot whose first runs wait until they are told to go on; every later one answers at once."""

    def __init__(self, *, sends_first: bool = False, holds: int = 1) -> None:
        self.opened = threading.Event()
        self.waiting = threading.Event()
        self.runs = 0
        self.app = App("gate")

        @self.app.command("ping")
        async def ping(ctx: Context) -> str:
            self.runs += 1
            if self.runs <= holds:
                if sends_first:
                    await ctx.reply("first")
                self.waiting.set()
                await asyncio.to_thread(self.opened.wait, 10)
            return "pong"

        @self.app.notice("notify")
        async def poked(ctx: Any) -> str:
            return await ping(ctx)


async def held_by(one: Shard, gate: Gate, event: Json) -> None:
    """Have a worker win a message and wait in its handler."""
    one.live()
    one.hear(event)
    await wait_until(gate.waiting.is_set)


def standing_by(
    shard: Shard, clock: HandClock, taken: list[Report], may_answer: Callable[[Report], bool] = lambda _: True
) -> Standby:
    """The worker's standby on a clock of the test's; what it takes is only noted."""
    worker = shard.worker
    worker.pipeline.standby = Standby(
        claims=worker.claims,
        lapses=worker.lapses,
        clock=clock,
        meters=worker.meters,
        take_up=lambda report, _: taken.append(report),
        may_answer=may_answer,
        has_room=lambda: True,
        max_messages=10,
        look_s=1.0,
    )
    return worker.pipeline.standby


async def ended(shard: Shard, **columns: Any) -> bool:
    books = await shard.ended()
    return all(getattr(books, name) == value for name, value in columns.items())


@KINDS
async def test_a_message_whose_holder_dies_before_the_effect_is_answered_by_another_worker(
    redis_url: str, tmp_path: Path, seq: int | None
) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        at = time.time()
        await held_by(one, gate, group_message("10001", "ping", seq=seq, at=at))
        two.live()
        two.hear(group_message("10002", "ping", seq=seq, at=at))
        await wait_until(lambda: len(two.worker.standby) == 1)
        assert two.sent() == []
        await one.die()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        # The zombie comes back: it may neither send nor end what another has answered.
        gate.opened.set()
        await one.quiet()
        await two.quiet()
        assert one.sent() == []
        assert one.meters.released == {Reason.LEASE_LOST: 1}
        assert one.meters.fences > 0
        assert two.meters.outcomes == DONE
        assert await ended(two, distinct=1, handled=1, open=0, dead={})


async def test_a_living_holder_keeps_its_message_however_long_it_takes(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        waiting = two.worker.standby
        await wait_until(lambda: len(waiting) == 1)
        (kept,) = waiting._waiting
        # Two looks or more have found the holder alive.
        await wait_until(lambda: kept.wait > 0.1 and len(waiting) == 1, 5)
        gate.opened.set()
        await one.quiet()
        assert (one.sent(), two.sent()) == (["pong"], [])
        assert gate.runs == 1
        await wait_until(lambda: len(waiting) == 0, 5)


async def test_a_notice_is_taken_over_too(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, poke("10001"))
        two.live()
        # Another end's clock: the entry stands in the hash of the first report's second.
        two.hear(poke("10002", at=poke("10001")["time"] - 5))
        await wait_until(lambda: len(two.worker.standby) == 1)
        await one.die()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        gate.opened.set()
        await two.quiet()
        assert await ended(two, distinct=1, handled=1, open=0)


async def test_of_two_that_stand_by_one_answers_and_the_other_stands_by_for_it(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, gate.app, **FAST) as (one, two, three):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        for shard, bot in ((two, "10002"), (three, "10003")):
            shard.live()
            shard.hear(group_message(bot, "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == len(three.worker.standby) == 1)
        await one.die()
        await wait_until(lambda: two.sent() + three.sent() == ["pong"], 5)
        await wait_until(lambda: len(two.worker.standby) + len(three.worker.standby) == 0, 5)
        assert two.meters.taken_over + three.meters.taken_over == 1
        gate.opened.set()
        await one.quiet()
        assert two.sent() + three.sent() == ["pong"]


@KINDS
async def test_a_message_whose_effect_had_begun_is_never_sent_again_and_shown_as_unknown(
    redis_url: str, tmp_path: Path, seq: int | None
) -> None:
    gate = Gate(sends_first=True)
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        at = time.time()
        await held_by(one, gate, group_message("10001", "ping", seq=seq, at=at))
        two.live()
        two.hear(group_message("10002", "ping", seq=seq, at=at))
        await one.die()
        await wait_until(lambda: two.meters.orphans == {Reason.SENT_UNKNOWN: 1}, 10)
        assert two.sent() == []
        assert await ended(two, distinct=1, handled=0, dead={"sent_unknown": 1}, open=0)
        (dead,) = await two.dead()
        assert dead.reason == "sent_unknown"
        assert dead.cause == "holder_died"
        # Only the one that had sent can say how it went; it does so when it comes back, and sends no more.
        gate.opened.set()
        await one.quiet()
        assert one.sent() == ["first"]
        await wait_until(lambda: not one.worker.claims.unsettled)
        assert await ended(two, distinct=1, dropped={"lease_lost": 1}, open=0)
        assert await two.dead() == []


@KINDS
async def test_a_message_that_only_the_dead_worker_saw_ends_as_lost(
    redis_url: str, tmp_path: Path, seq: int | None
) -> None:
    gate, said = Gate(), group_message("10001", "ping", seq=seq)
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, said)
        two.live()
        await one.die()
        await wait_until(lambda: two.meters.orphans == {Reason.HOLDER_LOST: 1}, 10)
        assert await ended(two, distinct=1, dead={"holder_lost": 1}, open=0)
        (dead,) = await two.dead()
        assert (dead.reason, dead.space, dead.shard_id) == ("holder_lost", "700100200", "0")
        assert dead.said_at == said["time"]
        gate.opened.set()
        await one.quiet()
        assert one.sent() == []


async def test_a_holder_that_overslept_its_lease_goes_on_under_a_new_epoch(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, **FAST) as (one,):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        former = one.worker.lease.epoch
        await one.worker.lease.release()
        gate.opened.set()
        await wait_until(lambda: one.meters.released == {Reason.LEASE_LOST: 1})
        assert one.sent() == []
        await wait_until(lambda: one.sent() == ["pong"], 5)
        assert one.worker.lease.epoch > former
        await one.quiet()
        assert gate.runs == 2
        assert one.meters.outcomes == DONE


async def test_a_lease_that_lapses_again_and_again_costs_no_message(redis_url: str, tmp_path: Path) -> None:
    # More often than a message is tried over links that carry nothing.
    lapses = 7
    app, runs, gates = App("slow"), [0], [threading.Event() for _ in range(lapses)]

    @app.command("ping")
    async def ping(_: Context) -> str:
        runs[0] += 1
        if runs[0] <= lapses:
            await asyncio.to_thread(gates[runs[0] - 1].wait, 10)
        return "pong"

    async with shards(redis_url, tmp_path, app, **FAST) as (one,):
        one.live()
        one.hear(group_message("10001", "ping", seq=7))
        for number, gate in enumerate(gates, 1):
            await wait_until(lambda number=number: runs[0] == number, 5)  # type: ignore[misc]
            await one.worker.lease.release()
            gate.set()
            await wait_until(lambda number=number: one.meters.released[Reason.LEASE_LOST] == number, 5)  # type: ignore[misc]
        await wait_until(lambda: one.sent() == ["pong"], 5)
        await one.quiet()
        assert await ended(one, distinct=1, handled=1, open=0)


async def test_who_looked_while_the_holder_lived_takes_it_as_soon_as_the_holder_is_dead(
    redis_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    clock = HandClock()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        taken: list[Report] = []
        standby = standing_by(two, clock, taken)
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(standby) == 1)
        clock.advance(1)
        await standby.look()
        assert not taken
        await one.worker.lease.release()
        # It is not due for another look yet; that its holder is dead says enough.
        await standby.look()
        assert len(taken) == 1
        gate.opened.set()


@pytest.mark.parametrize("begun", [False, True], ids=["before the effect", "after it"])
async def test_a_worker_that_wakes_from_its_hosts_sleep_acts_under_a_new_epoch_only(
    redis_url: str, tmp_path: Path, *, begun: bool
) -> None:
    gate, host = Gate(sends_first=begun), SleepyHost()
    async with shards(redis_url, tmp_path, gate.app, gate.app, clocks=[host], **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        former = one.worker.lease.epoch
        host.slept_s += 20
        gate.opened.set()
        await wait_until(lambda: one.worker.lease.epoch > former, 5)
        await wait_until(lambda: sum(one.meters.released.values()) + sum(one.meters.outcomes.values()) > 0, 5)
        await wait_until(lambda: begun or one.sent() + two.sent(), 5)
        await one.quiet()
        await two.quiet()
        assert one.meters.fences > 0
        assert one.sent() + two.sent() == (["first"] if begun else ["pong"])
        assert await ended(one, distinct=1, open=0)


async def test_an_effect_that_was_recorded_too_late_to_be_sent_is_taken_back(redis_url: str, tmp_path: Path) -> None:
    gate, host = Gate(), SleepyHost()
    gate.opened.set()
    async with shards(redis_url, tmp_path, gate.app, clocks=[host], **FAST) as (one,):
        one.live()
        one.worker.claims._faults = Dozing(host)
        one.hear(group_message("10001", "ping", seq=7))
        await wait_until(lambda: one.sent() == ["pong"], 5)
        await one.quiet()
        assert one.meters.released == {Reason.LEASE_LOST: 1}
        assert one.meters.taken_over == 1
        assert gate.runs == 2
        assert await ended(one, distinct=1, handled=1, open=0)


async def test_a_handler_that_sends_nothing_is_not_run_again_where_the_lease_lapsed_meanwhile(
    redis_url: str, tmp_path: Path
) -> None:
    runs, going_on, app = [], threading.Event(), App("silent")

    @app.command("note")
    def note(_: Context) -> None:
        runs.append(1)
        going_on.wait(10)

    async with shards(redis_url, tmp_path, app, **FAST) as (one,):
        one.live()
        one.hear(group_message("10001", "note", seq=7))
        await wait_until(lambda: runs)
        await one.worker.lease.release()
        going_on.set()
        await wait_until(lambda: one.meters.outcomes == DONE, 5)
        await one.quiet()
        assert runs == [1]
        assert await ended(one, distinct=1, handled=1, open=0)


async def test_the_handler_that_swallows_the_refusal_has_not_answered(redis_url: str, tmp_path: Path) -> None:
    gate, runs, app = threading.Event(), [], App("careless")

    @app.command("ping")
    async def ping(ctx: Context) -> None:
        runs.append(1)
        await asyncio.to_thread(gate.wait, 10)
        try:
            await ctx.reply("pong")
        except Exception:
            # As careless bots do.
            return

    async with shards(redis_url, tmp_path, app, **FAST) as (one,):
        one.live()
        one.hear(group_message("10001", "ping", seq=7))
        await wait_until(lambda: runs)
        await one.worker.lease.release()
        gate.set()
        await wait_until(lambda: one.sent() == ["pong"], 5)
        assert len(runs) == 2


async def test_where_the_winners_link_is_gone_another_worker_answers(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        await one.ends["10001"].close()
        gate.opened.set()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        await one.quiet()
        await two.quiet()
        assert one.meters.released == {Reason.NO_LINK: 1}
        assert await ended(two, distinct=1, handled=1, open=0)


async def test_where_the_link_was_gone_at_the_reply_and_is_back_by_the_end_another_worker_answers(
    redis_url: str, tmp_path: Path
) -> None:
    app, refused, back = App("tidy"), threading.Event(), threading.Event()
    other = Gate(holds=0)

    @app.command("ping")
    async def ping(ctx: Context) -> None:
        gate.waiting.set()
        await asyncio.to_thread(gate.opened.wait, 10)
        try:
            await ctx.reply("pong")
        finally:
            refused.set()
            await asyncio.to_thread(back.wait, 10)

    gate = Gate()
    async with shards(redis_url, tmp_path, app, other.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        await one.ends["10001"].close()
        gate.opened.set()
        await wait_until(refused.is_set)
        one.connect("10001")
        back.set()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        await one.quiet()
        await two.quiet()
        assert one.meters.released == {Reason.NO_LINK: 1}
        assert await ended(two, distinct=1, handled=1, open=0)


async def test_where_the_only_link_comes_back_in_time_its_account_answers(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, **FAST) as (one,):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        await one.ends["10001"].close()
        gate.opened.set()
        await wait_until(lambda: one.meters.released == {Reason.NO_LINK: 1})
        back = one.connect("10001")
        await wait_until(lambda: back.sent == ["pong"], 5)
        await one.quiet()
        assert one.meters.outcomes == DONE


async def test_where_the_link_breaks_between_the_record_and_the_write_another_worker_answers(
    redis_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        broken = one.connect("10001")
        await one.quiet()

        async def write(frame: bytes) -> None:
            raise ConnectionResetError(f"the line is gone: {len(frame)} bytes were not written")

        broken.write = write  # type: ignore[method-assign]
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        gate.opened.set()
        await wait_until(lambda: broken.link.is_open and one.meters.released == {Reason.NO_LINK: 1})
        await broken.close()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        await one.quiet()
        await two.quiet()
        assert await ended(two, distinct=1, handled=1, open=0)


async def test_a_message_whose_link_breaks_at_every_write_is_left_to_the_others_after_some_tries(
    redis_url: str, tmp_path: Path
) -> None:
    gate = Gate(holds=0)
    async with shards(redis_url, tmp_path, gate.app, **FAST) as (one,):
        one.live()
        broken = one.connect("10001")
        await one.quiet()

        async def write(frame: bytes) -> None:
            raise ConnectionResetError(f"the line is gone: {len(frame)} bytes were not written")

        broken.write = write  # type: ignore[method-assign]
        broken.hear(group_message("10001", "ping", seq=7))
        await wait_until(lambda: one.meters.orphans == {Reason.HOLDER_LOST: 1}, 15)
        await one.quiet()
        assert one.meters.released[Reason.NO_LINK] == gate.runs == 6
        (dead,) = await one.dead()
        assert dead.cause == "given_back"


async def test_a_redis_that_answers_late_each_time_still_decides_every_message(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    assert redis_url
    gate = Gate(holds=0)
    async with Proxy(valkey.port) as proxy, shards(proxy.url, tmp_path, gate.app, lease_s=10.0) as (one,):
        proxy.latency_s = 0.4
        for number in range(5):
            one.hear(group_message("10001", f"ping {number}", seq=number + 1))
        await wait_until(lambda: len(one.sent()) == 5, 15)
        await wait_until(lambda: not one.worker.claims.unsettled, 15)
        assert one.meters.outcomes == {(Outcome.HANDLED, Reason.OK): 5}
        assert one.meters.unknown["no_reply"] >= 10, "each claim and each effect was late once"
        proxy.latency_s = 0.0


async def test_a_take_over_whose_reply_was_lost_is_gone_on_with(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        (kept,) = two.worker.standby._waiting
        # Redis did it, and nobody here has heard.
        assert await two.worker.claims.look([kept.claim]) == [True]
        assert await two.worker.claims.take_over(kept.claim) is Verdict.WON
        two.live()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        gate.opened.set()
        await two.quiet()
        await one.quiet()
        assert one.sent() == []
        assert await ended(two, distinct=1, handled=1, open=0)


async def test_a_take_over_that_is_heard_of_too_late_is_dropped(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    watch = SetWatch()
    async with shards(redis_url, tmp_path, gate.app, gate.app, clocks=[SystemClock(), watch], **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        (kept,) = two.worker.standby._waiting
        # Redis did it, and nobody here has heard until nobody expects an answer any more.
        assert await two.worker.claims.look([kept.claim]) == [True]
        assert await two.worker.claims.take_over(kept.claim) is Verdict.WON
        watch.ahead_s = two.worker._settings.stale_s + 1
        two.live()
        await wait_until(lambda: two.meters.outcomes == {(Outcome.DROPPED, Reason.STALE): 1}, 5)
        gate.opened.set()
        await two.quiet()
        await one.quiet()
        assert one.sent() + two.sent() == []
        assert await ended(two, distinct=1, handled=0, open=0)


async def test_a_message_that_cannot_be_looked_at_is_kept(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    faulty = [True]

    def may_answer(_: object) -> bool:
        if faulty:
            faulty.clear()
            raise RuntimeError("a mistake of ours")
        return True

    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        taken: list[Report] = []
        clock = HandClock()
        standby = standing_by(two, clock, taken, may_answer)
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(standby) == 1)
        await one.worker.lease.release()
        clock.advance(1)
        with pytest.raises(RuntimeError):
            await standby.look()
        assert len(standby) == 1
        clock.advance(2)
        await standby.look()
        assert len(taken) == 1
        gate.opened.set()


async def test_where_redis_forgot_what_was_given_back_its_former_holder_claims_it_anew(
    redis_url: str, tmp_path: Path
) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        former = one.worker.lease.epoch
        await one.worker._redis.execute("FLUSHALL")
        await wait_until(lambda: one.worker.lease.epoch > former, 5)
        gate.opened.set()
        await wait_until(lambda: one.sent() + two.sent() == ["pong"], 5)
        await one.quiet()
        await two.quiet()
        assert one.sent() + two.sent() == ["pong"]
        assert await ended(one, distinct=1, handled=1, open=0)


async def test_the_handler_that_swallows_a_lost_link_has_not_answered(redis_url: str, tmp_path: Path) -> None:
    gate, runs, app = threading.Event(), [], App("careless")

    @app.command("ping")
    async def ping(ctx: Context) -> None:
        runs.append(1)
        await asyncio.to_thread(gate.wait, 10)
        try:
            await ctx.reply("pong")
        except Exception:
            # As careless bots do.
            return

    async with shards(redis_url, tmp_path, app, app, **FAST) as (one, two):
        one.live()
        one.hear(group_message("10001", "ping", seq=7))
        await wait_until(lambda: runs)
        two.live()
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        await one.ends["10001"].close()
        gate.set()
        await wait_until(lambda: two.sent() == ["pong"], 5)
        assert one.meters.released == {Reason.NO_LINK: 1}


async def test_all_that_a_dead_worker_held_is_taken_in_one_look_and_no_more_than_there_is_room_for(
    redis_url: str, tmp_path: Path
) -> None:
    gate = Gate(holds=1200)
    async with shards(redis_url, tmp_path, gate.app, gate.app, max_pending=2000, **{**FAST, "lease_s": 30.0}) as (
        one,
        two,
    ):
        for seq in range(1, 1201):
            one.hear(group_message("10001", f"ping {seq}", seq=seq))
        await wait_until(lambda: one.meters.distinct == 1200, 10)
        for seq in range(1, 1201):
            two.hear(group_message("10002", f"ping {seq}", seq=seq))
        await wait_until(lambda: len(two.worker.standby) == 1200, 10)
        await one.worker.lease.release()
        await two.worker.standby.look()
        await two.worker.standby.look()
        assert two.meters.taken_over == 1200
        gate.opened.set()


async def test_a_stopping_worker_hands_back_what_it_had_not_begun(redis_url: str, tmp_path: Path) -> None:
    gate = Gate()
    async with shards(redis_url, tmp_path, gate.app, gate.app, **FAST) as (one, two):
        two.live()
        await held_by(one, gate, group_message("10001", "ping", seq=7))
        two.hear(group_message("10002", "ping", seq=7))
        await wait_until(lambda: len(two.worker.standby) == 1)
        await wait_until(lambda: not one.worker._is_alone())
        stopping = asyncio.create_task(one.worker.stop())
        await wait_until(lambda: two.sent() == ["pong"], 5)
        gate.opened.set()
        await stopping
        assert one.meters.released == {Reason.SHUTDOWN: 1}
        assert one.sent() == []


async def test_what_a_full_standby_cannot_keep_is_counted(redis_url: str, tmp_path: Path) -> None:
    gate = Gate(holds=2)
    async with shards(redis_url, tmp_path, gate.app, gate.app, **{**FAST, "standby_messages": 1}) as (one, two):
        for seq in (7, 8):
            one.hear(group_message("10001", f"ping {seq}", seq=seq))
        await wait_until(lambda: gate.runs == 2)
        for seq in (7, 8):
            two.hear(group_message("10002", f"ping {seq}", seq=seq))
        await wait_until(lambda: two.meters.standby_overflow == 1)
        assert len(two.worker.standby) == 1
        gate.opened.set()


def refused(call: Json) -> Json | None:
    """An end whose answers to sends get lost."""
    return None if call["action"].startswith("send_") else answered(call)


async def test_a_send_without_an_answer_is_listed_with_account_and_handler(redis_url: str, tmp_path: Path) -> None:
    app = App("quick")

    @app.command("ping")
    async def ping(_: Context) -> str:
        return "pong"

    async with shards(redis_url, tmp_path, app, action_timeout_s=0.5, **FAST) as (one,):
        one.live()
        one.connect("10001", refused).hear(group_message("10001", "ping", seq=7))
        await wait_until(lambda: one.meters.outcomes == {(Outcome.DEAD, Reason.SENT_UNKNOWN): 1}, 5)
        await one.quiet()
        (dead,) = await one.dead()
        assert (dead.reason, dead.cause, dead.bot_id, dead.handler) == ("sent_unknown", "no_answer", "10001", "ping")
        assert await ended(one, distinct=1, dead={"sent_unknown": 1}, open=0)
