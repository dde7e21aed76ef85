"""The harness's own sums: what counts as lost, doubled, in the window, and how late a take-over was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pallas.simulate import Options, Row
from tests.support import row_table
from tests.support.books import StoredBooks
from tests.support.judge import Death, Figures, judge
from tests.support.runs import Run, read_runs
from tests.support.traffic import Traffic

W0, W1 = "ws://127.0.0.1:1/", "ws://127.0.0.1:2/"
BOOKS = StoredBooks(distinct=0, outcomes={}, open=0, dead=(), workers={})


class Told(Traffic):
    """A traffic whose rows are written by the test; account 0 is on the first worker, account 1 on the second."""

    def __init__(self, *rows: Row) -> None:
        super().__init__(Options(urls=(W0, W1)))
        self._told = list(rows)

    def rows(self) -> list[Row]:
        return self._told

    def urls(self, row: Row) -> frozenset[str]:
        return frozenset((W0, W1)[index] for index in row.heard_by)


def row(nonce: str = "n", asked: float = 10.0, *answered: float, heard_by: tuple[int, ...] = (0, 1)) -> Row:
    return Row(
        group="1",
        nonce=nonce,
        asked=1,
        unsure=0,
        answered=len(answered),
        asked_at=(asked,),
        answered_at=answered,
        heard_by=frozenset(heard_by),
        answered_by=(0,) * len(answered),
    )


def run(nonce: str, pid: int, began: float, ended: float | None, error: str = "") -> Run:
    return Run("1", nonce, pid, began, ended, error)


def figures(
    *rows: Row, runs: tuple[Run, ...] = (), deaths: tuple[Death, ...] = (), books: StoredBooks = BOOKS
) -> Figures:
    return judge(Told(*rows), list(runs), books, deaths)


def test_one_answer_for_each_message_is_clean() -> None:
    found = figures(row("a", 10, 10.1), row("b", 10, 10.2), runs=(run("a", 7, 10, 10.1), run("b", 8, 10, 10.2)))
    assert found.is_clean
    assert (found.load, found.window, found.worst_takeover_s) == (2, 0, 0.0)


def test_no_answer_is_lost_and_two_are_doubled_whatever_the_product_says() -> None:
    found = figures(row("a"), row("b", 10, 10.1, 10.2), books=replace(BOOKS, distinct=2, outcomes={"handled": 2}))
    assert (found.lost, found.doubled) == (1, 1)
    assert (found.lost_keys, found.doubled_keys) == ((("1", "a"),), (("1", "b"),))
    assert not found.is_clean


def test_a_report_that_may_not_have_arrived_is_owed_nothing_and_may_be_answered() -> None:
    assert figures(replace(row("a"), asked=0, unsure=1)).is_clean
    assert figures(replace(row("a", 10, 10.1), asked=0, unsure=1)).is_clean
    assert figures(replace(row("a", 10, 10.1, 10.2), asked=0, unsure=1)).doubled == 1


def test_two_runs_to_the_end_are_a_double_also_where_one_sent_nothing() -> None:
    runs = (run("a", 7, 10, 10.1), run("a", 8, 10, 10.2))
    assert figures(row("a", 10, 10.1), runs=runs).doubled_runs == 1
    refused = (run("a", 7, 10, 10.1), run("a", 8, 10, 10.2, "LeaseLost"), run("a", 9, 10, None))
    assert figures(row("a", 10, 10.1), runs=refused).doubled_runs == 0


@pytest.mark.parametrize(
    "effects, began, ended, allowed",
    [
        (True, 11.0, None, 1),  # it was at work on it when it died
        (True, 11.0, 12.5, 1),  # it slept, and came to an end later
        (False, 11.0, None, 0),  # it died before its first effect: another should have taken it
        (True, 11.0, 11.5, 0),  # it had finished
        (True, 12.5, None, 0),  # it began after the death: another process with its number
    ],
)
def test_a_death_may_cost_what_the_worker_was_at_work_on(
    effects: bool, began: float, ended: float | None, allowed: int
) -> None:
    death = Death(pid=7, url=W0, at=12.0, effects=effects)
    found = figures(row("a", 10.5), runs=(run("a", 7, began, ended),), deaths=(death,))
    assert (found.window, found.lost_in_window, found.lost) == (allowed, allowed, 1 - allowed)
    assert figures(row("a", 10.5), runs=(run("a", 8, 11.0, None),), deaths=(death,)).lost == 1


@pytest.mark.parametrize(
    "asked, heard_by, allowed",
    [
        (11.5, (0,), 1),  # only the dead worker was told, just before
        (13.0, (0,), 1),  # and after its death
        (10.0, (0,), 0),  # long before: it had time to tell Redis
        (11.5, (0, 1), 0),  # another worker was told as well
        (11.5, (1,), 0),
    ],
)
def test_a_death_may_cost_what_nobody_else_was_told_in_its_last_second(
    asked: float, heard_by: tuple[int, ...], allowed: int
) -> None:
    death = Death(pid=7, url=W0, at=12.0, effects=False)
    found = figures(row("a", asked, heard_by=heard_by), deaths=(death,))
    assert (found.window, found.lost) == (allowed, 1 - allowed)
    assert figures(row("a", asked, asked + 0.1 if asked < 12 else 13.1, heard_by=heard_by), deaths=(death,)).is_clean


def test_what_is_lost_in_the_window_must_be_seen_in_the_books() -> None:
    death = Death(pid=7, url=W0, at=12.0)

    def unseen(outcomes: dict[str, int]) -> int:
        books = replace(BOOKS, outcomes=outcomes)
        return figures(row("a", 11.9), runs=(run("a", 7, 11.95, None),), deaths=(death,), books=books).unseen

    assert unseen({}) == 1
    assert unseen({"handled": 1}) == 1
    assert unseen({"dead:sent_unknown": 1}) == 0
    assert unseen({"dropped:lease_lost": 1}) == 0


def test_a_take_over_is_measured_from_the_death() -> None:
    death = Death(pid=7, url=W0, at=12.0)
    found = figures(row("a", 11.0, 14.5), row("b", 11.0, 11.1), row("c", 13.0, 13.1), deaths=(death,))
    assert found.takeovers == (2.5,)


@pytest.mark.parametrize(
    "books, stuck, unbalanced",
    [
        (replace(BOOKS, distinct=3, outcomes={"handled": 2}, open=1), 1, 0),
        (replace(BOOKS, distinct=3, outcomes={"handled": 2}), 0, 1),
        (replace(BOOKS, distinct=1, outcomes={"handled": 2}), 0, 1),
    ],
)
def test_open_and_unbalanced_books_are_told_apart(books: StoredBooks, stuck: int, unbalanced: int) -> None:
    found = figures(row("a", 10, 10.1), books=books)
    assert (found.stuck, found.books, found.is_clean) == (stuck, unbalanced, False)


def test_a_workers_own_columns_must_add_up() -> None:
    own = {"arrived": 5, "refused": {"stale": 1}, "copies": {"replay": 1}, "ignored": 1, "distinct": 1, "pending": 0}
    assert figures(books=replace(BOOKS, workers={"0": {"books": own}})).books == 1
    assert figures(books=replace(BOOKS, workers={"0": {"books": {**own, "pending": 1}}})).is_clean


def test_runs_are_read_back_whatever_became_of_their_process(tmp_path: Path) -> None:
    line = '{{"phase":"{}","nonce":"{}","group":"1","bot":"9","pid":7,"at":{},"error":"{}"}}\n'
    written = [
        line.format("began", "a", 1.0, ""),
        line.format("began", "a", 1.5, ""),
        line.format("done", "a", 2.0, ""),
    ]
    written += [line.format("failed", "a", 3.0, "LeaseLost"), line.format("began", "b", 4.0, ""), '{"phase":"do']
    (tmp_path / "7.jsonl").write_text("".join(written))
    found = read_runs(tmp_path)
    assert [(each.nonce, each.ended, each.error) for each in found] == [
        ("a", 2.0, ""),
        ("a", 3.0, "LeaseLost"),
        ("b", None, ""),
    ]
    assert [each.is_done for each in found] == [True, False, False]


def test_the_table_has_a_line_for_each_row_also_where_nothing_was_measured() -> None:
    class Report:
        def __init__(self, nodeid: str, outcome: str, *facts: str) -> None:
            self.nodeid = nodeid
            self.outcome = outcome
            self.user_properties = [("fault-matrix", fact) for fact in facts]

    lines = row_table.table(
        [
            Report("t.py::test_that_ten_is_after_two", "failed", '{"row":"F10"}'),
            Report(
                "t.py::test_two", "passed", '{"row":"F2"}', '{"fault":"a fault","load":5,"lost":0,"takeover_s":1.5}'
            ),
            Report("t.py::test_no_row", "passed"),
        ]
    )
    assert [line.split()[0] for line in lines] == ["row", "F2", "F10"]
    assert "1.5" in lines[1]
    assert lines[1].endswith("passed  a fault")
    assert lines[2].endswith("failed  that ten is after two")
    assert row_table.table([]) == []
