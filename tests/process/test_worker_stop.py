"""How a worker leaves: the work in hand is finished, presence and lease are given back, links close last."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.deployment import api, events, get, is_ready, metric, site
from tests.support.waiting import block_until

APP = ("--app", "pallas.demo:app")


def test_sigterm_under_load_lets_the_work_in_hand_finish_and_says_goodbye(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.start("up", "up", "--workers", "1", *APP)
        block_until(lambda: is_ready(here.hub_url), 20, saying="the first worker and the hub are there")
        worker = here.start("worker", "worker", "--shard-id", "1", *APP)
        block_until(lambda: is_ready(here.worker_url(1)), 20, saying="the second worker is there")
        load = here.load(2, messages=500, rate=100, patience_s=4, time_scale=0.3)
        block_until(lambda: metric(here.worker_url(1), "pallas_outbound_calls_total") > 20, 20, saying="it answers")
        began = time.monotonic()
        assert worker.terminate(20) == 0, worker.output()
        assert time.monotonic() - began < 3 + 2  # its grace, and a little
        assert get(here.worker_url(1) + "/healthz") == (0, "")
        rows = api(here, "bots")["bots"]
        assert {row["shard_id"] for row in rows if row["state"] == "online"} <= {"0"}
        # No lease is left, so that a successor need not wait.
        successor = here.start("successor", "worker", "--shard-id", "1", *APP)
        block_until(lambda: is_ready(here.worker_url(1)), 20, saying="the successor is there")
        assert not events(successor, "lease.waiting")
        closings = events(worker, "link.closed")
        assert closings
        assert {closing["code"] for closing in closings if closing["last"]} == {1012}
        assert not events(worker, "task.failed")
        assert "Traceback" not in worker.output(100_000)
        # What the leaving worker alone was told in its last moments may be lost; nothing may be answered twice.
        assert load.result(40).doubled == 0
        block_until(lambda: api(here, "books")["ended"]["open"] == 0, 10, saying="nothing stays open")
        books = api(here, "books")["ended"]
        assert not books["dead"], books
