"""What becomes of a message whose answer the protocol end refuses, takes late, loses or never speaks of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.simulate import Conduct
from tests.support.lab import Lab, lab
from tests.support.row_table import Record

TIMEOUT_S = 0.6


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    with lab(tmp_path, redis_url, PALLAS_ACTION_TIMEOUT_S=str(TIMEOUT_S)) as here:
        for shard in (0, 1):
            here.start(shard)
        here.wait_ready(0, 1)
        yield here


@pytest.mark.row("F50")
def test_whatever_an_end_makes_of_a_send_it_is_asked_once_and_the_doubt_is_shown(here: Lab, record: Record) -> None:
    cases = {
        # conduct, how late: messages of four that the ends accept
        (Conduct.REFUSE, 0.0): 0,
        (Conduct.LATE, TIMEOUT_S / 3): 4,
        (Conduct.LATE, TIMEOUT_S * 3): 4,
        (Conduct.OK_THEN_CUT, 0.0): 4,
        (Conduct.CUT_BEFORE, 0.0): 0,
        (Conduct.NEVER, 0.0): 0,
    }
    with contextlib.ExitStack() as stack:
        # Slow enough for a link that was cut to be back before the next message.
        loads = {
            (conduct, late_s): stack.enter_context(
                here.traffic(
                    *(0, 1),
                    accounts=2,
                    groups=1,
                    messages=4,
                    rate=4,
                    offset=100 * place,
                    conduct=(conduct,),
                    late_s=late_s,
                    patience_s=4 * TIMEOUT_S,
                    time_scale=0.02,
                )
            )
            for place, (conduct, late_s) in enumerate(cases)
        }
        for load in loads.values():
            load.report()
        figures = here.figures(loads[Conduct.LATE, TIMEOUT_S / 3])
        record("refused, late, cut before and after, never", figures)
        assert figures.is_clean, figures
        for case, load in loads.items():
            assert sum(row.answered for row in load.rows()) == cases[case], (case, load.rows())
            assert here.figures(load).doubled == 0, case
    books = here.books()
    assert books.outcomes == {"dropped:handler_error": 4, "handled": 4, "dead:sent_unknown": 16}
    assert [row["state"] for row in books.dead] == ["e"] * 16
