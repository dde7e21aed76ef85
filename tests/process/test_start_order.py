"""Hub and workers that are there before Redis, in any order: they wait, and are ready soon after it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.deployment import get, is_ready
from tests.support.lab import lab
from tests.support.row_table import Record
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import block_until


@pytest.mark.row("F5")
@pytest.mark.parametrize("order", [("hub", 0, 1), (1, "hub", 0)], ids=["hub first", "a worker first"])
def test_everything_started_before_redis_is_ready_within_five_seconds_of_it(
    tmp_path: Path, new_valkey: Callable[..., ValkeyProcess], order: tuple[str | int, ...], record: Record
) -> None:
    server = new_valkey()
    server.stop()
    with lab(tmp_path, server.url) as here:
        hub = None
        for name in order:
            if isinstance(name, int):
                here.start(name)
            else:
                hub = here.site.start("hub", "hub")
        assert hub is not None
        bases = [here.site.hub_url, here.base(0), here.base(1)]
        block_until(lambda: all(get(f"{base}/healthz")[0] == 200 for base in bases), 20, saying="all are there")
        assert [get(f"{base}/readyz")[0] for base in bases] == [503, 503, 503]
        server.start()
        block_until(lambda: all(map(is_ready, bases)), 5, saying="all are ready")
        with here.traffic(0, 1, messages=20, rate=40) as traffic:
            figures = here.figures(traffic)
            record(f"started before Redis: {', '.join(map(str, order))}", figures)
        assert figures.is_clean, figures
        for process in (hub, *here.workers.values()):
            assert process.exit_code is None
            assert "Traceback" not in process.output(100_000)
