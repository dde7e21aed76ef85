"""What a process counts, and how it shows it to Prometheus.

Counting is an integer in memory: the hot path pays a tenth of a microsecond for it, and the library's own counters
would take a tenth of all time. Names are `pallas_<area>_<what>_total|_seconds`; no group's or user's id is a label.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from pallas.errors import RedisUnavailable, ReplyError
from pallas.model import Outcome, Reason

_LATENCY_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """Counts of durations per bound, in seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_LATENCY_BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(_LATENCY_BOUNDS_S, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        names = [*map(str, _LATENCY_BOUNDS_S), "+Inf"]
        running, rows = 0, []
        for name, count in zip(names, self.counts, strict=True):
            running += count
            rows.append((name, float(running)))
        return rows


class Meters:
    """The counts of one worker.

    The books of a live process: `arrived = refused + copies + ignored + distinct + pending`, where *pending* are
    messages that Redis has not decided yet. Of what it holds, `distinct + taken_over = outcomes + released + running`.
    """

    def __init__(self) -> None:
        self.arrived = 0
        self.refused: defaultdict[Reason, int] = defaultdict(int)
        self.copies: defaultdict[Reason, int] = defaultdict(int)
        self.ignored = 0
        self.distinct = 0
        self.taken_over = 0
        self.released: defaultdict[Reason, int] = defaultdict(int)
        self.standby = 0
        self.standby_overflow = 0
        self.orphans: defaultdict[Reason, int] = defaultdict(int)
        self.unbalanced = 0
        self.pending = 0
        self.outcomes: defaultdict[tuple[Outcome, Reason], int] = defaultdict(int)
        self.frames = 0
        self.repaired = 0
        self.events: defaultdict[str, int] = defaultdict(int)
        self.unknown: defaultdict[str, int] = defaultdict(int)
        self.fences = 0
        self.forgot = 0
        self.lapses = 0
        self.sends: defaultdict[str, int] = defaultdict(int)
        self.oddities: dict[str, int] = {}
        """What protocol ends reported otherwise than they should, by kind."""
        self.suspects: dict[str, int] = {}
        """Accounts whose end is found to be at fault now, by fault."""
        self.links = 0
        self.handshakes: defaultdict[str, int] = defaultdict(int)
        self.running = 0
        self.loop_lag_s = 0.0
        self.handler_lag_s = 0.0
        self.to_handler = Histogram()

    def claim_unknown(self, error: Exception) -> None:
        """A claim, effect or end had no answer and is asked again."""
        cause = "no_reply"
        if isinstance(error, RedisUnavailable):
            cause = "not_connected"
        elif isinstance(error, ReplyError):
            cause = "refused"
        self.unknown[cause] += 1

    def fenced(self) -> None:
        """Something was refused because its epoch had lapsed or another holds the entry."""
        self.fences += 1

    def forgotten(self) -> None:
        """Redis no longer knew an entry that ended: it lost data."""
        self.forgot += 1

    def books(self) -> dict[str, Any]:
        """The process's side of the books, by reason.

        `running` is what is held and has not ended: what stays there on an idle worker was lost sight of.
        """
        held = self.distinct + self.taken_over - sum(self.outcomes.values()) - sum(self.released.values())
        return {
            "arrived": self.arrived,
            "refused": _by_code(self.refused),
            "copies": _by_code(self.copies),
            "ignored": self.ignored,
            "distinct": self.distinct,
            "pending": self.pending,
            "taken_over": self.taken_over,
            "outcomes": {
                outcome.value if reason is Reason.OK else f"{outcome}:{reason}": count
                for (outcome, reason), count in self.outcomes.items()
            },
            "released": _by_code(self.released),
            "running": max(0, held),
            "standby": self.standby,
            "orphans": _by_code(self.orphans),
        }


def _by_code(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {reason.value: count for reason, count in counts.items()}


def _counter(name: str, text: str, rows: Iterable[tuple[list[str], float]], labels: list[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in rows:
        family.add_metric(values, count)
    return family


class MeterCollector(Collector):
    """Reads a worker's meters when Prometheus asks."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        meters = self._meters
        reports = [(["arrived", ""], float(meters.arrived)), (["ignored", "no_handler"], float(meters.ignored))]
        reports += [(["distinct", ""], float(meters.distinct))]
        reports += [(["refused", reason.value], float(count)) for reason, count in meters.refused.items()]
        reports += [(["copy", reason.value], float(count)) for reason, count in meters.copies.items()]
        yield _counter(
            "pallas_ingress_reports", "Reports of messages by what became of them", reports, ["state", "reason"]
        )
        yield _counter(
            "pallas_ingress_outcomes",
            "Distinct messages of this worker by outcome",
            [([outcome.value, reason.value], float(count)) for (outcome, reason), count in meters.outcomes.items()],
            ["outcome", "reason"],
        )
        yield _counter(
            "pallas_standby_taken_over",
            "Messages whose holder died and that this worker took",
            [([], float(meters.taken_over))],
            [],
        )
        yield _counter(
            "pallas_claim_released",
            "Messages given back unbegun",
            [([reason.value], float(count)) for reason, count in meters.released.items()],
            ["reason"],
        )
        yield _counter(
            "pallas_standby_overflow",
            "Messages not kept for a take-over: too many",
            [([], float(meters.standby_overflow))],
            [],
        )
        yield _counter(
            "pallas_claim_orphans",
            "Open entries of dead workers that this worker ended",
            [([reason.value], float(count)) for reason, count in meters.orphans.items()],
            ["reason"],
        )
        yield GaugeMetricFamily("pallas_standby_waiting", "Messages that another worker holds", value=meters.standby)
        yield GaugeMetricFamily(
            "pallas_books_unbalanced", "Distinct messages that neither ended nor are open", value=meters.unbalanced
        )
        yield _counter("pallas_link_frames", "Frames received", [([], float(meters.frames))], [])
        yield _counter(
            "pallas_link_repaired", "Frames whose text had to be repaired", [([], float(meters.repaired))], []
        )
        yield _counter(
            "pallas_link_events",
            "Events that are not messages, by kind",
            [([kind], float(count)) for kind, count in meters.events.items()],
            ["kind"],
        )
        yield _counter(
            "pallas_link_handshakes",
            "Handshakes by result",
            [([result], float(count)) for result, count in meters.handshakes.items()],
            ["result"],
        )
        yield _counter(
            "pallas_claim_unknown",
            "Claims, effects and ends that had no answer and were asked again",
            [([cause], float(count)) for cause, count in meters.unknown.items()],
            ["cause"],
        )
        yield _counter("pallas_claim_fenced", "Refusals because the epoch had lapsed", [([], float(meters.fences))], [])
        yield _counter("pallas_lease_ended", "Leases given up, lapsed or released", [([], float(meters.lapses))], [])
        yield _counter("pallas_claim_forgotten", "Ends of entries Redis had lost", [([], float(meters.forgot))], [])
        yield _counter(
            "pallas_outbound_calls",
            "Calls to protocol ends by result",
            [([result], float(count)) for result, count in meters.sends.items()],
            ["result"],
        )
        yield _counter(
            "pallas_identity_oddities",
            "What protocol ends reported otherwise than they should, by kind",
            [([kind], float(count)) for kind, count in meters.oddities.items()],
            ["kind"],
        )
        suspects = GaugeMetricFamily(
            "pallas_identity_suspects", "Accounts whose end is found to be at fault now", labels=["fault"]
        )
        for fault, number in meters.suspects.items():
            suspects.add_metric([fault], number)
        yield suspects
        yield GaugeMetricFamily("pallas_link_open", "Open links", value=meters.links)
        yield GaugeMetricFamily("pallas_ingress_pending", "Messages Redis has not decided yet", value=meters.pending)
        yield GaugeMetricFamily("pallas_handler_running", "Handlers that run now", value=meters.running)
        yield GaugeMetricFamily("pallas_loop_lag_seconds", "How late the socket loop runs", value=meters.loop_lag_s)
        yield GaugeMetricFamily(
            "pallas_handler_lag_seconds", "How late the handler loop runs", value=meters.handler_lag_s
        )
        histogram = meters.to_handler
        family = HistogramMetricFamily("pallas_ingress_to_handler_seconds", "From the frame to the handler's start")
        family.add_metric([], buckets=histogram.buckets(), sum_value=histogram.total)
        yield family


def exposition(*collectors: Collector) -> bytes:
    """The text that `/metrics` answers."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)
