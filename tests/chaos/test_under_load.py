"""Faults in the middle of a steady load: three workers, twelve accounts, forty groups, copies, delays and repeats.

The fault comes after a third of the time and is healed after two thirds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.deployment import is_ready
from tests.support.judge import Death, Figures
from tests.support.lab import LEASE_S, ORPHAN_AFTER_S, REAL, Lab, lab
from tests.support.proxy import proxied
from tests.support.row_table import Record
from tests.support.traffic import Traffic
from tests.support.waiting import block_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]
SHARDS = (0, 1, 2)
SECONDS = 36
RATE = 100
LOAD: dict[str, Any] = {
    "accounts": 12,
    "groups": 40,
    "messages": SECONDS * RATE,
    "rate": RATE,
    "repeats": 0.15,
    "losses": 0.01,
    "duplicates": 0.1,
    "chatter": 0.1,
    "renewals": 0.25,
    "spread_s": 2.0,
    "settle_s": 1.0,
    "patience_s": LEASE_S + 6,
}
RESTED_S = LEASE_S + ORPHAN_AFTER_S + 8


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    with lab(tmp_path, redis_url) as here:
        yield here


def third(here: Lab, traffic: Traffic) -> None:
    """Until a third of the load is said."""
    traffic.until(lambda load: load.sent >= LOAD["messages"] / 3, SECONDS, saying="a third is said")
    assert here.books().distinct


def port_of(redis_url: str) -> int:
    found = urlsplit(redis_url).port
    assert found
    return found


def clean(figures: Figures, *, window: int) -> None:
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    assert figures.window <= window, figures


@pytest.mark.row("F1")
@pytest.mark.parametrize("seed", [1, 2])
def test_workers_are_killed_and_started_again_all_the_time(here: Lab, record: Record, seed: int) -> None:
    for shard in SHARDS:
        here.start(shard)
    here.wait_ready(*SHARDS)
    rng = random.Random(seed)
    with here.traffic(*SHARDS, **LOAD, seed=seed) as traffic:
        third(here, traffic)
        while traffic.sent < LOAD["messages"] * 2 / 3:
            shard = rng.choice(SHARDS)
            here.kill(shard)
            here.start(shard)
            here.wait_s(rng.uniform(0.5, 2.0))
            here.wait_ready(shard)
        figures = here.figures(traffic, RESTED_S)
        record(f"kill -9 of {len(here.deaths)} workers in turn, restarted", figures)
    # Each death may cost what was in hand at that moment: a handler here takes about two milliseconds.
    clean(figures, window=3 * len(here.deaths))


@pytest.mark.row("F3")
def test_a_rolling_restart_costs_nothing(here: Lab, record: Record) -> None:
    for shard in SHARDS:
        here.start(shard)
    here.wait_ready(*SHARDS)
    with here.traffic(*SHARDS, **LOAD) as traffic:
        third(here, traffic)
        for shard in SHARDS:
            assert here.workers[shard].terminate(20) == 0
            here.start(shard)
            here.wait_ready(shard)
            here.wait_s(2.0)
        figures = here.figures(traffic, RESTED_S)
        record("SIGTERM of each worker in turn, restarted", figures)
    clean(figures, window=0)
    assert figures.unhandled == 0, figures


@pytest.mark.row("F4")
def test_the_hub_is_killed_and_away_for_a_third_of_the_time(here: Lab, record: Record) -> None:
    for shard in SHARDS:
        here.start(shard)
    hub = here.site.start("hub", "hub")
    here.wait_ready(*SHARDS)
    block_until(lambda: is_ready(here.site.hub_url), 20, saying="the hub is ready")
    with here.traffic(*SHARDS, **LOAD) as traffic:
        third(here, traffic)
        hub.kill()
        before, began = traffic.answered, here.clock.mono()
        here.wait_s(SECONDS / 3)
        pace = (traffic.answered - before) / (here.clock.mono() - began)
        here.site.start("hub-again", "hub")
        block_until(lambda: is_ready(here.site.hub_url), 10, saying="the hub is back")
        figures = here.figures(traffic, RESTED_S)
        record(f"hub killed: {pace:.0f} answers a second without it", figures)
    clean(figures, window=0)
    assert pace > RATE * 0.95


@pytest.mark.row("F27")
@pytest.mark.parametrize(
    "lose",
    [("lose_requests", "lose_replies"), ("lose_replies",), ("lose_requests",)],
    ids=["both", "replies", "requests"],
)
def test_a_worker_is_cut_off_from_redis_without_a_word(here: Lab, record: Record, lose: tuple[str, ...]) -> None:
    port = port_of(here.redis_url)
    with proxied(port) as proxy:
        here.start(0, PALLAS_REDIS_URL=proxy.url)
        here.start(1)
        here.start(2)
        here.wait_ready(*SHARDS)
        with here.traffic(*SHARDS, **LOAD) as traffic:
            third(here, traffic)
            death = here.cut_off(0)
            for knob in lose:
                setattr(proxy, knob, True)
            here.wait_s(SECONDS / 3)
            for knob in lose:
                setattr(proxy, knob, False)
            # What was swallowed is gone for these connections: the machine in between forgets them.
            proxy.reset()
            here.rejoined(death)
            block_until(lambda: is_ready(here.base(0)), 15, saying="it is ready again by itself")
            figures = here.figures(traffic, RESTED_S)
            record(f"worker cut from Redis for {SECONDS // 3} s: {' and '.join(lose)}", figures)
    clean(figures, window=20)
    assert len(here.events(0, "lease.taken")) >= 2


@pytest.mark.row("F29")
def test_the_way_to_redis_is_slow_and_stalls(tmp_path: Path, redis_url: str, record: Record) -> None:
    port = port_of(redis_url)
    # The delays are real ones, so the lease is, too.
    with lab(tmp_path, redis_url, **REAL) as here, proxied(port) as proxy:
        here.start(0, PALLAS_REDIS_URL=proxy.url)
        here.start(1)
        here.start(2)
        here.wait_ready(*SHARDS)
        with here.traffic(*SHARDS, **LOAD) as traffic:
            third(here, traffic)
            proxy.latency_s, proxy.jitter_s, proxy.stall_share = 0.2, 0.15, 0.02
            here.wait_s(SECONDS / 3)
            proxy.latency_s = proxy.jitter_s = proxy.stall_share = 0.0
            figures = here.figures(traffic, RESTED_S)
            late = traffic.report().details["latency_p99_ms"]
            record(f"Redis at 200 ± 150 ms, 2 % stalls: p99 {late:.0f} ms", figures)
        assert len(here.events(0, "lease.taken")) == 1
    clean(figures, window=0)
    assert figures.unhandled == 0, figures
    assert late < 1200, late


@pytest.mark.row("F31")
def test_the_links_of_a_worker_flap(here: Lab, record: Record) -> None:
    for shard in SHARDS:
        here.start(shard)
    here.wait_ready(*SHARDS)
    with proxied(here.site.worker_port) as proxy:
        urls = (proxy.ws_url, here.url(1), here.url(2))
        with here.traffic(**{**LOAD, "urls": urls}) as traffic:
            third(here, traffic)
            while traffic.sent < LOAD["messages"] * 2 / 3:
                here.deaths.append(Death(here.workers[0].pid, proxy.ws_url, here.clock.mono()))
                proxy.set_down(True)
                here.wait_s(1.0)
                proxy.set_down(False)
                here.rejoined(here.deaths[-1])
                here.wait_s(1.0)
            figures = here.figures(traffic, RESTED_S)
            record("links 1 s on, 1 s off", figures)
    # What was being sent when its link broke is in doubt, and shown. A frame that the proxy had taken and not passed on
    # reached nobody, whatever its end believes: where no other account saw the message it is lost without a trace.
    assert figures.is_clean, figures
    assert figures.lost_in_window <= figures.unhandled + 12, figures
    assert figures.window <= 60, figures
