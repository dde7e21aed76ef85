"""The ledger's arithmetic: repeats, copies, doubles, losses and writes that broke."""

from __future__ import annotations

import json

import pytest

from pallas.simulate.answers import Sent
from pallas.simulate.ledger import Ledger, Record
from pallas.simulate.world import Account, Group, Impl, Member, Physical, Piece, Said

ACCOUNTS = tuple(
    Account(index, 100 + index, impl, f"ws://user:pw@127.0.0.1:{8090 + index % 2}/ws", False, True, False, None)
    for index, impl in enumerate(Impl)
)
A, B, C, D = ACCOUNTS
ANN = Member(80001, "a", "", "member")
PLACE = Group(7001, "g", (0, 1, 2, 3), (ANN,), 1)
OTHER = Group(7002, "h", (0, 1, 2, 3), (ANN,), 1)


def said(text: str, group: Group = PLACE) -> Said:
    return Said(group, ANN, (Piece("text", text),), text, wanted=text.startswith("ping "))


def message(text: str, group: Group = PLACE, *, repeat: bool = False) -> Physical:
    return Physical(said(text, group), 0, 1, 1, repeat, ())


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(ACCOUNTS)


def heard(ledger: Ledger, text: str, *accounts: Account, group: Group = PLACE, at: float = 0.0) -> Record:
    record = ledger.physical(message(text, group))
    for account in accounts:
        ledger.written(record, account, at)
    return record


def pong(ledger: Ledger, nonce: str, account: Account = A, group: Group = PLACE, at: float = 1.0) -> None:
    ledger.accepted(account, Sent(group.group_id, f"pong {nonce}"), at)


def counts(ledger: Ledger) -> tuple[int, int, int, int]:
    report = ledger.report()
    assert ledger.outstanding == report.lost
    return report.physical, report.answered, report.lost, report.doubled


def test_one_message_reported_by_many_and_answered_once_balances(ledger: Ledger) -> None:
    heard(ledger, "ping x", A, B, C)
    assert counts(ledger) == (1, 0, 1, 0)
    pong(ledger, "x")
    assert counts(ledger) == (1, 1, 0, 0)
    assert ledger.report().ok
    assert ledger.report().reports == 3


def test_an_honest_repeat_is_owed_an_answer_of_its_own(ledger: Ledger) -> None:
    heard(ledger, "ping x", A, B)
    heard(ledger, "ping x", A, B)
    pong(ledger, "x")
    assert counts(ledger) == (2, 1, 1, 0)
    pong(ledger, "x")
    assert counts(ledger) == (2, 2, 0, 0)


def test_an_answer_too_many_is_a_double_and_does_not_pay_for_another_text(ledger: Ledger) -> None:
    heard(ledger, "ping x", A)
    heard(ledger, "ping y", A)
    pong(ledger, "x", A)
    pong(ledger, "x", B)
    report = ledger.report()
    assert (report.lost, report.doubled) == (1, 1)
    assert not report.ok
    assert [example.text for example in report.lost_examples] == ["ping y"]
    assert report.doubled_examples[0].answered_by == ("100", "101")
    assert report.doubled_examples[0].reported_by == ("100",)


def test_the_same_text_in_another_group_is_another_message(ledger: Ledger) -> None:
    heard(ledger, "ping x", A)
    heard(ledger, "ping x", A, group=OTHER)
    pong(ledger, "x")
    pong(ledger, "x")
    assert counts(ledger) == (2, 2, 1, 1)


def test_an_answer_to_what_was_never_asked_is_a_double(ledger: Ledger) -> None:
    pong(ledger, "never")
    assert counts(ledger) == (0, 1, 0, 1)


def test_a_copy_is_one_report_more_and_no_message_more(ledger: Ledger) -> None:
    record = heard(ledger, "ping x", A)
    ledger.written(record, A, 0.5, copy=True)
    pong(ledger, "x")
    assert counts(ledger) == (1, 1, 0, 0)
    assert ledger.report().details["copies"] == 1
    assert ledger.report().reports == 2


def test_a_message_nobody_reported_is_owed_nothing(ledger: Ledger) -> None:
    heard(ledger, "ping x")
    ledger.missed(A)
    assert counts(ledger) == (0, 0, 0, 0)
    assert ledger.report().details["unheard"] == 1
    assert ledger.report().details["missed"] == 1


def test_a_report_whose_write_broke_is_owed_nothing_and_its_answer_is_no_double(ledger: Ledger) -> None:
    record = heard(ledger, "ping x", A)
    ledger.doubted(record, A)
    assert counts(ledger) == (0, 0, 0, 0)
    assert ledger.report().details["unsure"] == 1
    pong(ledger, "x")
    assert counts(ledger) == (0, 1, 0, 0)
    pong(ledger, "x")
    assert counts(ledger) == (0, 2, 0, 1)


def test_a_broken_write_changes_nothing_where_another_account_reported(ledger: Ledger) -> None:
    first = heard(ledger, "ping x", A, B)
    ledger.doubted(first, A)
    assert counts(ledger) == (1, 0, 1, 0)
    second = heard(ledger, "ping y", A)
    ledger.doubted(second, A)
    ledger.written(second, B, 2.0)
    assert counts(ledger) == (2, 0, 2, 0)
    assert ledger.report().details["unsure"] == 0


def test_chatter_is_owed_nothing_and_other_sends_are_strays(ledger: Ledger) -> None:
    heard(ledger, "good morning", A, B)
    ledger.accepted(A, Sent(PLACE.group_id, "good morning to you"), 1.0)
    ledger.accepted(A, Sent(0, "pong x"), 1.0)
    ledger.refused(B)
    assert counts(ledger) == (0, 0, 0, 0)
    details = ledger.report().details
    assert (details["chatter"], details["strays"], details["refused"]) == (1, 2, 1)


def test_latency_runs_from_the_first_report_to_the_answer(ledger: Ledger) -> None:
    heard(ledger, "ping x", A, at=1.0)
    heard(ledger, "ping x", A, at=5.0)
    pong(ledger, "x", at=1.01)
    pong(ledger, "x", at=5.03)
    details = ledger.report().details
    assert details["latency_p50_ms"] == pytest.approx(30)
    assert details["latency_p99_ms"] == pytest.approx(30)
    assert ledger.first_answer_at == 1.01
    assert Ledger(ACCOUNTS).report().details["latency_p50_ms"] is None


def test_the_json_form_starts_with_the_five_numbers_and_shows_no_credentials(ledger: Ledger) -> None:
    heard(ledger, "ping x", A, B)
    pong(ledger, "x", B)
    shown = ledger.report(accounts=4).as_dict()
    assert list(shown)[:5] == ["physical", "reports", "answered", "lost", "doubled"]
    assert shown["accounts"] == 4
    assert shown["implementations"]["llonebot"] == {"accounts": 1, "reports": 1, "answered": 1}
    assert shown["workers"]["ws://127.0.0.1:8091/ws"] == {"accounts": 2, "reports": 1, "answered": 1}
    assert "pw" not in json.dumps(shown)
