"""A worker that sleeps past its lease and wakes: it sends nothing more for what it held, and begins anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.faults import Point
from tests.support.lab import LEASE_S, ORPHAN_AFTER_S, Lab, lab
from tests.support.row_table import Record
from tests.support.waiting import block_until


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    with lab(tmp_path, redis_url) as here:
        yield here


@pytest.mark.row("F2")
@pytest.mark.parametrize(
    "point",
    [Point.CLAIMED, Point.RUNNING, Point.EFFECT, Point.RECORDED, Point.SENT, Point.ENDING],
    ids=lambda point: point.name.lower(),
)
def test_a_worker_that_slept_past_its_lease_doubles_nothing_and_takes_a_new_epoch(
    here: Lab, point: Point, record: Record
) -> None:
    here.start(1)
    # Before the effect at the worker's first message: an earlier one might still be on its way to an end.
    here.start(0, fault=f"stop:{point.name.lower()}:{1 if point < Point.RECORDED else 2}")
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=24, rate=25, seed=point.value) as traffic:
        death = here.stopped(0)
        here.wait_s(2 * LEASE_S)
        here.go_on(0)
        woke = here.clock.mono()
        block_until(lambda: len(here.events(0, "lease.taken")) == 2, 10, saying="it has a new epoch")
        figures = here.figures(traffic, LEASE_S + ORPHAN_AFTER_S + 5)
        record(f"SIGSTOP at {point.name.lower()} for two leases", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    first, second = (event["epoch"] for event in here.events(0, "lease.taken"))
    assert second > first
    if point < Point.RECORDED:
        # Nothing had been begun: somebody else answered while it slept, and its own late try was refused.
        assert figures.lost_in_window == figures.unhandled == 0, figures
        assert figures.worst_takeover_s <= LEASE_S + 2.0, figures
        assert here.metric(0, "pallas_claim_fenced_total") >= 1
        late = [
            run for run in here.runs if run.pid == death.pid and run.is_done and run.began < woke < (run.ended or 0)
        ]
        assert not late, "a run that was held over the sleep came to its end as if nothing had been"
    assert "Traceback" not in here.workers[0].output(100_000)


@pytest.mark.row("F2")
def test_an_answer_that_arrives_after_the_sleep_turns_unknown_into_handled(here: Lab, record: Record) -> None:
    here.start(1)
    here.start(0, fault="stop:sent")
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=24, rate=25) as traffic:
        here.stopped(0)
        block_until(lambda: here.books().unknown == 1, LEASE_S + ORPHAN_AFTER_S + 6, saying="it is shown as unknown")
        assert [row["state"] for row in here.books().dead] == ["e"]
        here.go_on(0)
        block_until(lambda: here.books().unknown == 0, 10, saying="its holder told how it went")
        figures = here.figures(traffic)
        record("SIGSTOP mid-send until it is ended as unknown", figures)
    assert figures.is_clean, figures
    books = here.books()
    assert books.outcomes == {"handled": 24, "dead:sent_unknown": 0}, books
    assert not books.dead


@pytest.mark.row("F33")
def test_when_the_whole_host_slept_every_lease_counts_as_lost_before_any_other_act(here: Lab, record: Record) -> None:
    for shard in (0, 1):
        here.start(shard, bot="slow", pause_s=0.3)
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=40, rate=40, patience_s=8) as traffic:
        traffic.until(lambda load: load.answered >= 6, saying="answers flow")
        for shard in (0, 1):
            here.stop(shard)
        here.wait_s(2 * LEASE_S)
        for shard in (0, 1):
            here.go_on(shard)
        block_until(lambda: all(len(here.events(shard, "lease.taken")) == 2 for shard in (0, 1)), 10)
        figures = here.figures(traffic, LEASE_S + ORPHAN_AFTER_S + 6)
        record("SIGSTOP of all workers for two leases", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
