"""The arithmetic and the traffic of the benches; no test here looks at how long anything takes."""

from __future__ import annotations

import itertools
import time
from collections import Counter

import orjson
import pytest
from websockets.frames import Opcode
from websockets.protocol import Protocol, Side

from bench import frames, measure, memory
from bench.claims import by_callers
from bench.tally import Tally
from pallas.model import Message
from pallas.onebot.wire import parse


def test_a_report_of_the_traffic_reads_as_the_message_that_was_said() -> None:
    said = frames.Traffic(1).messages(1)[0]
    now = int(time.time())

    message = parse(frames.report(said, 9001, now), bot_id="9001")

    assert isinstance(message, Message)
    assert (message.group_id, message.user_id, message.text) == (str(said.group_id), str(said.user_id), said.text)
    assert (message.seq, message.time_s, message.self_sent) == (said.seq & 0xFFFF, now, False)


def test_two_accounts_report_one_message_under_ids_of_their_own() -> None:
    said = frames.Traffic(1).messages(1)[0]

    first, second = (parse(frames.report(said, account, 1), bot_id=str(account)) for account in (9001, 9002))

    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert first.message_id != second.message_id
    assert first.seq == second.seq


def test_no_two_messages_of_the_traffic_share_a_text_or_a_sequence_of_their_group() -> None:
    traffic = frames.Traffic(7, groups=5)

    said = [*traffic.messages(500), traffic.control("report"), *traffic.messages(500)]

    assert len({each.text for each in said}) == len(said)
    assert len({(each.group_id, each.seq) for each in said}) == len(said)


def test_the_same_seed_gives_the_same_traffic() -> None:
    assert frames.Traffic(3).messages(50) == frames.Traffic(3).messages(50)
    assert frames.Traffic(3).messages(50) != frames.Traffic(4).messages(50)


def test_a_stamp_changes_nothing_but_the_time_in_a_text() -> None:
    text = frames.text_of(42, "晚上吃什么")

    sent = frames.stamped(text, 123_456_789)

    assert (frames.number_of(sent), frames.stamp_of(sent)) == (42, 123_456_789)
    assert frames.stamped(sent, 0) == text
    assert len(sent) == len(text)


def test_prepared_frames_are_what_a_websocket_server_accepts_from_a_client() -> None:
    payloads = [b"{}", b"x" * 200, "晚上吃什么".encode() * 9000]
    server = Protocol(Side.SERVER, max_size=None)

    for piece in frames.chunks([frames.masked(payload) for payload in payloads], 2):
        server.receive_data(piece)

    received = server.events_received()
    assert [bytes(getattr(frame, "data", b"")) for frame in received] == payloads
    assert {getattr(frame, "opcode", None) for frame in received} == {Opcode.TEXT}


@pytest.mark.parametrize(("size", "lengths"), [(64, [5]), (2, [2, 2, 1]), (5, [5])])
def test_chunks_hold_every_frame_once_and_in_order(size: int, lengths: list[int]) -> None:
    pieces = frames.chunks([b"a", b"b", b"c", b"d", b"e"], size)

    assert [len(piece) for piece in pieces] == lengths
    assert b"".join(pieces) == b"abcde"


def test_the_tally_answers_the_last_expected_message_and_only_that() -> None:
    tally = Tally()

    assert tally.take("!begin flood 3") == "!ready"
    answers = [tally.take(frames.text_of(number, "hi")) for number in (1, 2, 3, 4)]

    assert answers == [None, None, "!done", None]


def test_the_tally_tells_a_lost_message_from_one_that_came_twice() -> None:
    tally = Tally()
    tally.take("!begin flood 3")
    for number in (1, 2, 2):
        tally.take(frames.text_of(number, "hi"))

    report = orjson.loads((tally.take("!report") or "").partition(" ")[2])

    assert (report["handled"], report["distinct"]) == (3, 2)


def test_a_paced_run_measures_from_the_stamp_in_the_text() -> None:
    tally = Tally()
    tally.take("!begin paced 2")
    for number in (1, 2):
        tally.take(frames.text_of(number, "hi", time.monotonic_ns() - 5_000_000_000))

    report = orjson.loads((tally.take("!report") or "").partition(" ")[2])

    assert 5_000 <= report["p50_ms"] <= report["p99_ms"] <= report["max_ms"] < 60_000


def test_a_new_run_forgets_what_was_counted_before() -> None:
    tally = Tally()
    tally.take("!begin flood 1")
    tally.take(frames.text_of(1, "hi"))
    tally.take("!begin flood 1")

    assert tally.take(frames.text_of(2, "hi")) == "!done"


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [([3.0], 0.99, 3.0), ([4.0, 1.0, 3.0, 2.0], 0.5, 2.0), (list(range(1, 101)), 0.99, 99), ([1.0, 2.0], 1.0, 2.0)],
)
def test_a_quantile_is_the_value_that_the_share_does_not_exceed(
    values: list[float], share: float, found: float
) -> None:
    assert measure.quantile(values, share) == found


def test_a_ratio_is_judged_within_each_round() -> None:
    # The second round ran on a busy machine: both sides lost two thirds, and the ratio does not move.
    assert measure.ratio([300.0, 100.0, 330.0], [100.0, 33.0, 110.0]) == pytest.approx(3.0, rel=0.02)


@pytest.mark.parametrize("work", [lambda: measure.median([]), lambda: measure.quantile([], 0.5)])
def test_no_rounds_give_no_figure(work: object) -> None:
    assert callable(work)
    with pytest.raises(ValueError, match="at least one"):
        work()


@pytest.mark.parametrize(
    ("bar", "figure", "is_met"),
    [
        (measure.Bar(3.5), 3.5, True),
        (measure.Bar(3.5), 3.49, False),
        (measure.Bar(2, less_is_better=True), 1.99, True),
        (measure.Bar(2, less_is_better=True), 2.01, False),
    ],
)
def test_a_bar_is_met_at_its_limit(bar: measure.Bar, figure: float, is_met: bool) -> None:
    assert bar.met(figure) is is_met


def test_a_missed_bar_and_one_without_a_baseline_are_said_in_the_table() -> None:
    lines = [
        measure.Line("pool_ratio", "10/s", "5/s", 2.0, measure.Bar(3.5)),
        measure.Line("nonebot_ratio", "10/s", "not installed", None, measure.Bar(15)),
    ]

    result = measure.Result("claims", {"pool_ratio": 2.0}, lines)

    missed, absent = result.text().splitlines()[2:]
    assert missed.endswith("MISSED")
    assert absent.endswith("not compared")
    assert result.as_dict()["bars"] == {"pool_ratio": {"bar": "≥ 3.5", "figure": 2.0, "met": False}}


def test_a_table_keeps_its_columns_where_a_cell_is_wide() -> None:
    lines = measure.table(("", "x"), [("晚上", "1"), ("ab", "22")]).splitlines()

    assert lines == ["         x", "  晚上   1", "  ab    22"]


def test_a_day_of_messages_is_in_order_and_its_sequences_have_no_gaps() -> None:
    now = 1_790_000_000

    day = list(memory.day(1_000, 10, 1, now))

    assert [each.time_s for each in day] == sorted(each.time_s for each in day)
    assert now - memory.SPAN_S <= day[0].time_s <= day[-1].time_s < now
    for _, group in itertools.groupby(sorted(day, key=lambda each: (each.group, each.time_s)), lambda each: each.group):
        seqs = [each.seq for each in group]
        assert all((after - before) & 0xFFFF == 1 for before, after in itertools.pairwise(seqs))


async def test_callers_share_the_work_and_do_each_item_once() -> None:
    done: Counter[int] = Counter()

    async def act(item: int) -> None:
        done[item] += 1

    await by_callers(range(1_000), act)

    assert done == Counter(range(1_000))
