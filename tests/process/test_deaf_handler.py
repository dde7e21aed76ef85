"""A handler that holds its loop for longer than a lease: links, leases and the other workers do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lab import LEASE_S, lab
from tests.support.row_table import Record
from tests.support.waiting import block_until

HELD_S = LEASE_S + 1.0


@pytest.mark.row("F7")
def test_a_handler_that_blocks_for_longer_than_a_lease_costs_its_own_worker_time_and_nothing_else(
    tmp_path: Path, redis_url: str, record: Record
) -> None:
    with lab(tmp_path, redis_url) as here:
        here.start(0, bot="deaf", pause_s=HELD_S)
        here.start(1)
        here.wait_ready(0, 1)
        # Two messages reach the deaf one alone; the rest are the other's.
        with (
            here.traffic(0, accounts=1, groups=1, messages=2, rate=10, patience_s=3 * HELD_S) as few,
            here.traffic(1, accounts=2, groups=2, messages=40, rate=20, offset=100) as many,
        ):
            lag = "pallas_handler_lag_seconds"
            block_until(lambda: here.metric(0, lag) > HELD_S / 2, 3 * HELD_S, saying="it says that its handlers wait")
            healthy = many.report()
            figures = here.figures(few)
            record(f"a handler blocks {HELD_S:g} s", figures)
        assert (healthy.answered, healthy.lost, healthy.doubled) == (40, 0, 0)
        assert healthy.details["latency_p99_ms"] < 1000 * HELD_S / 2
        assert figures.is_clean, figures
        for shard in (0, 1):
            assert len(here.events(shard, "lease.taken")) == 1
            assert not here.events(shard, "lease.lost")
            # Each end's link was closed by itself, at the end of its load.
            assert {event["code"] for event in here.events(shard, "link.closed")} <= {1000}
