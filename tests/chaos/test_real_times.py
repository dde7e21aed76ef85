"""The deaths and sleeps of `tests/process`, once with the real times: leases of 10 s, orphans after 30 s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.faults import Point
from tests.support.lab import REAL, Lab, lab
from tests.support.row_table import Record
from tests.support.waiting import block_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
LEASE_S, ORPHAN_AFTER_S = 10.0, 30.0
SWEEPS_S = 5.0


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    with lab(tmp_path, redis_url, **REAL) as here:
        yield here


@pytest.mark.row("F1")
@pytest.mark.parametrize("point", list(Point), ids=lambda point: point.name.lower())
def test_kill_of_the_winner_with_a_lease_of_ten_seconds(here: Lab, point: Point, record: Record) -> None:
    here.start(1)
    here.start(0, fault=f"kill:{point.name.lower()}:20")
    here.wait_ready(0, 1)
    before_effect = point < Point.RECORDED
    load = {"accounts": 8, "groups": 10, "messages": 600, "rate": 50, "spread_s": 1.0, "patience_s": LEASE_S + 5}
    with here.traffic(0, 1, **load, repeats=0.1, duplicates=0.1, seed=point.value) as traffic:
        here.killed(0, effects=not before_effect, timeout=30)
        figures = here.figures(traffic, LEASE_S + ORPHAN_AFTER_S + SWEEPS_S)
        record(f"kill -9 at {point.name.lower()}, lease 10 s", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    assert figures.worst_takeover_s <= LEASE_S + 2, figures
    assert figures.window <= 15, figures
    if before_effect:
        # An earlier message may have been on its way to its end: that one is shown.
        assert figures.unhandled == figures.unknown <= 2, figures


@pytest.mark.row("F1")
@pytest.mark.parametrize("point", [Point.CLAIMED, Point.SENT], ids=lambda point: point.name.lower())
def test_what_one_account_alone_saw_has_an_outcome_within_the_lease_and_35_seconds(
    here: Lab, point: Point, record: Record
) -> None:
    here.start(1)
    here.start(0, fault=f"kill:{point.name.lower()}:2")
    here.wait_ready(0, 1)
    with here.traffic(0, accounts=1, groups=1, messages=2, rate=5, patience_s=1) as traffic:
        death = here.killed(0, effects=point >= Point.RECORDED)
        traffic.report()
        block_until(
            lambda: here.books().open == 0 and here.books().difference == 0,
            LEASE_S + 35,
            saying="it has an outcome",
        )
        figures = here.figures(traffic)
        late = here.clock.mono() - death.at
        record(f"kill -9 at {point.name.lower()}, one account: ended after {late:.0f} s", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    assert figures.unhandled == 1
    # Not before a standby had its time.
    assert late > ORPHAN_AFTER_S


@pytest.mark.row("F2")
@pytest.mark.parametrize("point", [Point.RUNNING, Point.EFFECT, Point.SENT], ids=lambda point: point.name.lower())
def test_a_worker_that_sleeps_for_two_leases_of_ten_seconds(here: Lab, point: Point, record: Record) -> None:
    here.start(1)
    here.start(0, fault=f"stop:{point.name.lower()}:20")
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=600, rate=50, spread_s=1.0, patience_s=LEASE_S * 3) as traffic:
        here.stopped(0, 30)
        here.wait_s(2 * LEASE_S)
        here.go_on(0)
        block_until(lambda: len(here.events(0, "lease.taken")) == 2, 10, saying="it has a new epoch")
        figures = here.figures(traffic, LEASE_S + ORPHAN_AFTER_S + SWEEPS_S)
        record(f"SIGSTOP at {point.name.lower()} for 20 s", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures


@pytest.mark.row("F7")
def test_a_handler_blocks_for_half_a_lease(here: Lab, record: Record) -> None:
    here.start(0, bot="deaf", pause_s=5.0)
    here.start(1)
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=10, rate=5, patience_s=60) as traffic:
        figures = here.figures(traffic, 60)
        record("every handler of one worker blocks 5 s", figures)
    assert figures.is_clean, figures
    for shard in (0, 1):
        assert len(here.events(shard, "lease.taken")) == 1


@pytest.mark.row("F33")
def test_the_whole_host_sleeps_for_two_leases(here: Lab, record: Record) -> None:
    for shard in (0, 1, 2):
        here.start(shard, bot="slow", pause_s=0.3)
    here.wait_ready(0, 1, 2)
    with here.traffic(0, 1, 2, accounts=9, groups=12, messages=600, rate=60, patience_s=30) as traffic:
        traffic.until(lambda load: load.answered >= 100, saying="answers flow")
        for shard in (0, 1, 2):
            here.stop(shard)
        here.wait_s(2 * LEASE_S)
        for shard in (0, 1, 2):
            here.go_on(shard)
        figures = here.figures(traffic, LEASE_S + ORPHAN_AFTER_S + SWEEPS_S)
        record("SIGSTOP of all workers for 20 s", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
