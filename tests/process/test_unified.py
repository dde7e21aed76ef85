"""`pallas unified`: hub and worker in one process, on the embedded server and on none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.deployment import Site, api, arguments, ended, is_ready, site
from tests.support.waiting import block_until

APP = ("--app", "pallas.demo:app")


def _handled(here: Site) -> int:
    """Handled messages by the product's books, once none is open in them."""
    books = api(here, "books")["ended"]
    return 0 if books["open"] else int(books["handled"])


@pytest.mark.parametrize("redis_url", ["embedded://", "memory://"])
def test_one_process_answers_every_message_once(tmp_path: Path, redis_url: str) -> None:
    with site(tmp_path, PALLAS_REDIS_URL=redis_url) as here:
        unified = here.start("unified", "unified", *APP)
        block_until(lambda: is_ready(here.hub_url) and is_ready(here.worker_url(0)), 20, saying=f"ready: {unified!r}")
        assert len(here.family.members()) == (2 if redis_url == "embedded://" else 1)
        books = here.demo(*arguments(accounts=8, groups=10, messages=200, rate=150))
        assert (books["answered"], books["lost"], books["doubled"]) == (200, 0, 0)
        assert len(books["workers"]) == 1
        block_until(lambda: _handled(here) == 200, 10, saying="the product's own books agree")
        assert unified.terminate() == 0, unified.output()
        assert not here.family.members()
        assert "Traceback" not in unified.output(100_000)


def test_embedded_server_of_a_killed_unified_is_taken_over_with_what_it_knew(tmp_path: Path) -> None:
    with site(tmp_path, PALLAS_LEASE_S="4") as here:
        unified = here.start("unified", "unified", *APP)
        block_until(lambda: is_ready(here.worker_url(0)), 20, saying=f"ready: {unified!r}")
        report = here.load(1, messages=20, rate=100, spread_s=0.2, settle_s=0.5).result(30)
        assert report.ok
        block_until(lambda: _handled(here) == 20, 10, saying="the books are written")
        unified.kill()
        killed = time.monotonic()
        block_until(lambda: not here.family.members(), 10, saying="its server has ended too")
        assert time.monotonic() - killed < 3.0
        # The killed one's lease must lapse first: the server is ours alone, so it is worth waiting for.
        again = here.start("again", "unified", *APP)
        block_until(lambda: is_ready(here.worker_url(0)), 20, saying=f"ready: {again!r}\n{again.output()}")
        assert _handled(here) == 20


def test_second_unified_on_the_same_folder_says_who_has_it(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        unified = here.start("unified", "unified", *APP)
        block_until(lambda: is_ready(here.worker_url(0)), 20, saying=f"ready: {unified!r}")
        second = here.start("second", "unified", *APP)
        assert ended(second) == 1
        assert f"in use by process {unified.pid}" in second.output()
        assert "Traceback" not in second.output()
