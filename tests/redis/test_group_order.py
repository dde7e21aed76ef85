"""Handlers of one group start in the order in which its messages arrived."""

from __future__ import annotations

from pathlib import Path

from pallas.app import App
from pallas.context import Context
from pallas.faults import Action, Faults, Point
from tests.support.proxy import Proxy
from tests.support.shards import group_message, shards
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

BURST = 400


def recorder() -> tuple[App, list[str]]:
    app, started = App("order"), []

    @app.command("say")
    async def say(ctx: Context) -> None:
        started.append(ctx.args)

    return app, started


async def test_a_burst_is_handled_in_the_order_of_its_arrival(redis_url: str, tmp_path: Path) -> None:
    app, started = recorder()
    async with shards(redis_url, tmp_path, app) as (shard,):
        # The scripts are unknown to the server and the burst fills several connections.
        for number in range(BURST):
            shard.hear(group_message("10001", f"say {number}", seq=number + 1))
        await shard.quiet()
    assert started == [str(number) for number in range(BURST)]


async def test_a_message_that_another_worker_won_holds_up_nobody(redis_url: str, tmp_path: Path) -> None:
    app, started = recorder()
    other, theirs = recorder()
    async with shards(redis_url, tmp_path, app, other) as (one, two):
        for number in range(0, BURST, 2):
            two.hear(group_message("10002", f"say {number}", seq=number + 1))
        await two.quiet()
        for number in range(BURST):
            one.hear(group_message("10001", f"say {number}", seq=number + 1))
        await one.quiet()
    assert started == [str(number) for number in range(1, BURST, 2)]
    assert theirs == [str(number) for number in range(0, BURST, 2)]


async def test_a_message_that_redis_does_not_decide_holds_up_those_behind_it_for_a_moment_only(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    app, started = recorder()
    assert redis_url
    async with Proxy(valkey.port) as proxy, shards(proxy.url, tmp_path, app) as (shard,):
        shard.hear(group_message("10001", "say warm", seq=1))
        await shard.quiet()
        proxy.cut_before_reply = 1
        shard.hear(group_message("10001", "say first", seq=2))
        await wait_until(lambda: proxy.cut_before_reply == 0)
        shard.hear(group_message("10001", "say second", seq=3))
        await shard.quiet()
    assert sorted(started[1:]) == ["first", "second"]


class Failing(Faults):
    """A mistake of ours, met by the second message whose handler is to start."""

    def __init__(self) -> None:
        super().__init__(Action.PAUSE, Point.RUNNING)

    def hit(self, point: Point) -> None:
        self.visits[point] += 1
        if point is Point.RUNNING and self.visits[point] == 2:
            raise RuntimeError("a mistake of ours")


async def test_a_message_that_fails_in_its_turn_holds_up_nobody(
    redis_url: str, valkey: ValkeyProcess, tmp_path: Path
) -> None:
    app, started = recorder()
    assert redis_url
    async with Proxy(valkey.port) as proxy, shards(proxy.url, tmp_path, app) as (shard,):
        shard.hear(group_message("10001", "say warm", seq=1))
        await shard.quiet()
        proxy.cut_before_reply = 1
        shard.hear(group_message("10001", "say first", seq=2))
        await wait_until(lambda: proxy.cut_before_reply == 0)
        # It waits for the first one, and all others wait behind it.
        shard.worker.pipeline._faults = Failing()
        for number in range(20):
            shard.hear(group_message("10001", f"say {number}", seq=number + 3))
        await wait_until(lambda: len(started) == 1 + 20, 10)


async def test_where_all_is_lost_no_chain_of_the_lost_grows(redis_url: str, tmp_path: Path) -> None:
    app, _ = recorder()
    other, _ = recorder()
    async with shards(redis_url, tmp_path, app, other) as (one, two):
        for number in range(50):
            two.hear(group_message("10002", f"say {number}", seq=number + 1))
        await two.quiet()
        for number in range(50):
            one.hear(group_message("10001", f"say {number}", seq=number + 1))
        await one.quiet()
        (group,) = one.worker.pipeline._table._groups.values()
        turn, length = group.last_turn, 0
        while turn is not None:
            turn, length = turn.before, length + 1
        assert length <= 2


async def test_the_order_keeps_no_message_in_memory_that_has_started(redis_url: str, tmp_path: Path) -> None:
    app, _ = recorder()
    async with shards(redis_url, tmp_path, app) as (shard,):
        for number in range(50):
            shard.hear(group_message("10001", f"say {number}", seq=number + 1))
        await shard.quiet()
        (group,) = shard.worker.pipeline._table._groups.values()
        assert group.last_turn is not None
        assert group.last_turn.before is None
