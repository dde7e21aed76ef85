"""`kill -9` of the worker that won a message, at every point of the message's way.

Before the first effect another worker that saw the message answers it; after it nobody does, and it is shown. Where
nobody else saw it, it ends as dead. Times are scaled; `tests/chaos` does the same with the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.faults import Point
from tests.support.lab import LEASE_S, ORPHAN_AFTER_S, Lab, lab
from tests.support.row_table import Record

ALL = list(Point)
VISIBLE_S = ORPHAN_AFTER_S + 5.0
"""From a lapse until every worker's sweep has ended what is orphaned."""


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    with lab(tmp_path, redis_url) as here:
        yield here


@pytest.mark.row("F1")
@pytest.mark.parametrize("point", ALL, ids=lambda point: point.name.lower())
def test_what_the_killed_winner_had_not_begun_is_answered_by_another_and_the_rest_is_shown(
    here: Lab, point: Point, record: Record
) -> None:
    before_effect = point < Point.RECORDED
    here.start(1)
    # Before the effect at the worker's first message: an earlier one might still be on its way to an end.
    here.start(0, fault=f"kill:{point.name.lower()}:{1 if before_effect else 2}")
    here.wait_ready(0, 1)
    with here.traffic(0, 1, messages=24, rate=25, seed=point.value) as traffic:
        here.killed(0, effects=not before_effect)
        figures = here.figures(traffic, LEASE_S + VISIBLE_S)
        record(f"kill -9 at {point.name.lower()}", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    # What was in hand at that moment, at 25 messages a second; a machine that is busy holds more.
    assert figures.window <= 10, figures
    assert figures.worst_takeover_s <= LEASE_S + 2.0, figures
    if before_effect:
        assert figures.unhandled == figures.window == 0, figures
        if point >= Point.CLAIMED:
            assert here.metric(1, "pallas_standby_taken_over_total") >= 1
    elif point < Point.ENDED:
        # Nobody can know whether it was sent: seen by people, never sent again.
        assert 1 <= figures.unknown <= 1 + figures.window, figures
        assert len(here.books().dead) == figures.unknown
        assert {row["state"] for row in here.books().dead} == {"e"}


@pytest.mark.row("F1")
@pytest.mark.parametrize(
    "point, ends_as",
    [
        (Point.CLAIMED, "dead:holder_lost"),
        (Point.EFFECT, "dead:holder_lost"),
        (Point.SENT, "dead:sent_unknown"),
        (Point.ENDING, "dead:sent_unknown"),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Point) else "",
)
def test_what_only_the_killed_worker_had_seen_ends_in_sight(
    here: Lab, point: Point, ends_as: str, record: Record
) -> None:
    here.start(1)
    here.start(0, fault=f"kill:{point.name.lower()}:2")
    here.wait_ready(0, 1)
    with here.traffic(0, accounts=1, groups=1, messages=2, rate=2, patience_s=0.5, seed=point.value) as traffic:
        death = here.killed(0, effects=point >= Point.RECORDED)
        figures = here.figures(traffic, LEASE_S + VISIBLE_S)
        late = here.clock.mono() - death.at
        record(f"kill -9 at {point.name.lower()}, one account", figures)
    assert figures.is_clean, figures
    assert not figures.unseen, figures
    books = here.books()
    assert books.outcomes == {"handled": 1, ends_as: 1}, books
    assert late <= LEASE_S + VISIBLE_S
