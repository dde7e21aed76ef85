"""Meters: what is counted is what Prometheus reads, under names that stay."""

from __future__ import annotations

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pallas.errors import RedisUnavailable, ReplyError, ReplyUnknown
from pallas.metrics import Histogram, MeterCollector, Meters, exposition
from pallas.model import Outcome, Reason


def read(meters: Meters) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = exposition(MeterCollector(meters)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_counts_are_read_as_they_stand() -> None:
    meters = Meters()
    meters.arrived = 9
    meters.refused[Reason.STALE] += 2
    meters.copies[Reason.OTHER_SHARD] += 3
    meters.ignored = 1
    meters.distinct = 3
    meters.outcomes[Outcome.HANDLED, Reason.OK] += 2
    found = read(meters)
    assert found["pallas_ingress_reports_total", (("reason", ""), ("state", "arrived"))] == 9
    assert found["pallas_ingress_reports_total", (("reason", "stale"), ("state", "refused"))] == 2
    assert found["pallas_ingress_reports_total", (("reason", "other_shard"), ("state", "copy"))] == 3
    assert found["pallas_ingress_outcomes_total", (("outcome", "handled"), ("reason", "ok"))] == 2


def test_every_name_has_its_area_and_its_unit() -> None:
    meters = Meters()
    meters.events["lifecycle"] += 1
    meters.sends["ok"] += 1
    meters.handshakes["taken"] += 1
    meters.claim_unknown(ReplyUnknown("late"))
    for name, _ in read(meters):
        assert re.fullmatch(r"pallas_(ingress|link|claim|standby|books|lease|outbound|handler|loop)_[a-z_]+", name)


def test_no_label_could_hold_the_id_of_a_group_or_a_person() -> None:
    meters = Meters()
    meters.refused[Reason.STALE] += 1
    allowed = {"state", "reason", "outcome", "kind", "result", "cause", "le"}
    for _, labels in read(meters):
        assert {name for name, _ in labels} <= allowed


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RedisUnavailable("refused"), "not_connected"),
        (ReplyUnknown("late"), "no_reply"),
        (ReplyError("OOM command not allowed"), "refused"),
    ],
)
def test_an_undecided_claim_is_counted_by_its_cause(error: Exception, cause: str) -> None:
    meters = Meters()
    meters.claim_unknown(error)
    assert read(meters)["pallas_claim_unknown_total", (("cause", cause),)] == 1


@pytest.mark.parametrize(
    ("seconds", "bound"), [(0.0, "0.0005"), (0.0005, "0.0005"), (0.0006, "0.001"), (10.0, "10.0"), (11.0, "+Inf")]
)
def test_a_duration_falls_into_the_first_bound_that_holds_it(seconds: float, bound: str) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    assert next(name for name, count in histogram.buckets() if count) == bound


def test_the_last_bound_counts_all() -> None:
    meters = Meters()
    for seconds in (0.0001, 0.3, 99.0):
        meters.to_handler.observe(seconds)
    found = read(meters)
    assert found["pallas_ingress_to_handler_seconds_bucket", (("le", "+Inf"),)] == 3
    assert found["pallas_ingress_to_handler_seconds_count", ()] == 3
    assert found["pallas_ingress_to_handler_seconds_sum", ()] == pytest.approx(99.3001)


def test_books_name_every_reason_by_its_code() -> None:
    meters = Meters()
    meters.arrived, meters.pending = 3, 1
    meters.refused[Reason.BAD_ID] += 1
    meters.copies[Reason.REPLAY] += 1
    assert meters.books() == {
        "arrived": 3,
        "refused": {"bad_id": 1},
        "copies": {"replay": 1},
        "ignored": 0,
        "distinct": 0,
        "pending": 1,
        "taken_over": 0,
        "outcomes": {},
        "released": {},
        "running": 0,
        "standby": 0,
        "orphans": {},
    }


def test_what_a_worker_holds_is_what_it_won_or_took_less_what_ended_or_went_back() -> None:
    meters = Meters()
    meters.distinct, meters.taken_over, meters.standby = 7, 2, 4
    meters.outcomes[Outcome.HANDLED, Reason.OK] += 3
    meters.outcomes[Outcome.DEAD, Reason.SENT_UNKNOWN] += 1
    meters.released[Reason.NO_LINK] += 2
    meters.orphans[Reason.HOLDER_LOST] += 1
    books = meters.books()
    assert books["outcomes"] == {"handled": 3, "dead:sent_unknown": 1}
    assert (books["released"], books["orphans"]) == ({"no_link": 2}, {"holder_lost": 1})
    assert (books["running"], books["standby"]) == (3, 4)
    meters.outcomes[Outcome.HANDLED, Reason.OK] += 9
    assert meters.books()["running"] == 0, "ends counted twice must show as a difference, not as a negative number"
