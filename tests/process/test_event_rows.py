"""What protocol ends do to messages (copies, orders, odd ids, rubbish), told to two workers over real sockets."""

from __future__ import annotations

import contextlib
import random
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.support.deployment import ONEBOT_TOKEN, get
from tests.support.judge import Figures
from tests.support.lab import Lab, lab
from tests.support.mini_end import MiniEnd
from tests.support.room import Room, room
from tests.support.row_table import Record
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until

MIB = 1 << 20
_LIMIT = 1 * MIB


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two workers for all tests of this file; each test has a group and accounts of its own."""
    with (
        ValkeyProcess() as server,
        lab(tmp_path_factory.mktemp("rows"), server.url, PALLAS_MAX_FRAME_BYTES=str(_LIMIT)) as here,
    ):
        for shard in (0, 1):
            here.start(shard)
        here.wait_ready(0, 1)
        yield here
        for process in here.workers.values():
            assert process.exit_code is None, process.output()
            assert "Traceback" not in process.output(100_000)


@pytest.fixture
async def group(here: Lab, request: pytest.FixtureRequest) -> AsyncIterator[Room]:
    """Five accounts of four implementations, on both workers in turn."""
    number = zlib.crc32(request.node.name.encode()) % 9000
    async with room(number, [here.url(0), here.url(1)], ONEBOT_TOKEN) as group:
        yield group


async def verdict(here: Lab, group: Room, record: Record, fault: str) -> Figures:
    await group.rest()
    figures = await group.figures(here.rest(5.0))
    record(fault, figures)
    assert figures.is_clean, figures
    assert not figures.unhandled, figures
    return figures


def reports(here: Lab, state: str, reason: str) -> float:
    """What both workers counted so."""
    line = f'pallas_ingress_reports_total{{reason="{reason}",state="{state}"}} '
    pages = [get(f"{here.base(shard)}/metrics")[1].splitlines() for shard in (0, 1)]
    return sum(float(one.removeprefix(line)) for page in pages for one in page if one.startswith(line))


@pytest.mark.row("F35")
async def test_three_copies_from_each_of_five_accounts_are_one_message(here: Lab, group: Room, record: Record) -> None:
    for seq in range(20):
        await group.say(f"ping c{seq}", 100 + seq, times=3)
    await verdict(here, group, record, "each frame 3 times on 5 accounts")


@pytest.mark.row("F35")
async def test_a_replay_after_seven_minutes_is_a_copy_and_after_a_day_too_old(
    here: Lab, group: Room, record: Record
) -> None:
    now = int(time.time())
    for seq in range(5):
        await group.say(f"ping r{seq}", 200 + seq, time=now - 420)
    await group.rest()
    late = [now - 420] * 5
    for end in group.ends:
        await end.hang_up()
        await end.dial()
    stale = reports(here, "refused", "stale")
    for end in group.ends:
        for seq, said_at in enumerate(late):
            await group.tell(end, f"ping r{seq}", 200 + seq, time=said_at)
            await group.tell(end, f"ping d{seq}", 300 + seq, time=now - 90_000)
    await wait_until(lambda: reports(here, "refused", "stale") == stale + 25)
    await verdict(here, group, record, "replays after 7 min and 25 h on new links")


@pytest.mark.row("F36")
async def test_reports_in_every_order_are_answered_once_each(here: Lab, group: Room, record: Record) -> None:
    rng = random.Random(36)
    told = [(end, seq) for end in group.ends for seq in range(40)]
    rng.shuffle(told)
    said_at = int(time.time())
    for seq in range(40):
        group.owed[f"pong o{seq}"] += 1
    for end, seq in told:
        await group.tell(end, f"ping o{seq}", 400 + seq, time=said_at + seq // 20)
    await verdict(here, group, record, "5 accounts in random orders")


@pytest.mark.row("F36")
async def test_a_recall_that_arrives_before_its_message_changes_nothing(here: Lab, group: Room, record: Record) -> None:
    for end in group.ends:
        message = group.event(end, "ping recalled", 601)
        recall = {
            "time": message["time"],
            "self_id": message["self_id"],
            "post_type": "notice",
            "notice_type": "group_recall",
            "group_id": group.group_id,
            "user_id": message["user_id"],
            "operator_id": message["user_id"],
            "message_id": message["message_id"],
        }
        await end.tell(recall)
    await group.say("ping recalled", 601)
    await verdict(here, group, record, "recall before its message")


@pytest.mark.row("F37")
async def test_the_same_words_of_the_same_person_are_answered_each_time(here: Lab, group: Room, record: Record) -> None:
    now = int(time.time()) - 10
    for seq, said_at in enumerate([now, now, now + 1, now + 1, now + 3, now + 7]):
        await group.say("ping again", 700 + seq, time=said_at)
    await verdict(here, group, record, "honest repeats after 0, 1, 2, 4 s")


@pytest.mark.row("F38")
@pytest.mark.parametrize("odd", [0, -1, -2_147_483_648, 2**63, "abc", "", None], ids=repr)
async def test_messages_whose_id_says_nothing_are_told_apart_by_their_sequence(
    here: Lab, group: Room, record: Record, odd: object
) -> None:
    napcats = [end for end in group.ends if end.costume == "napcat"]
    assert len(napcats) == 2
    for seq in range(4):
        await group.say(f"ping i{seq}", 800 + seq, napcats, message_id=odd)
    await group.say("ping twin", 810, napcats, message_id=odd)
    await group.say("ping twin", 811, napcats, message_id=odd)
    await verdict(here, group, record, f"message_id {odd!r}")


@pytest.mark.row("F38")
async def test_ids_of_two_accounts_that_collide_join_nothing(here: Lab, group: Room, record: Record) -> None:
    first, second = (end for end in group.ends if end.costume == "napcat")
    for seq in range(10):
        # What one account calls message N is another message to the other account.
        for end, theirs in ((first, seq), (second, 9 - seq)):
            await group.tell(end, f"ping k{theirs}", 900 + theirs, message_id=4242 + seq)
        group.owed[f"pong k{seq}"] += 1
    await verdict(here, group, record, "colliding ids of two accounts")


@pytest.mark.row("F39")
async def test_a_message_that_a_single_account_saw_is_answered(here: Lab, group: Room, record: Record) -> None:
    for seq in range(25):
        await group.say(f"ping s{seq}", 1000 + seq, [group.ends[seq % 5]])
    await verdict(here, group, record, "seen by 1 of 5 accounts")


@pytest.mark.row("F42")
async def test_an_account_that_is_on_two_workers_at_once_is_answered_once(
    here: Lab, group: Room, record: Record
) -> None:
    before = {shard: len(here.events(shard, "link.closed")) for shard in (0, 1)}
    old = group.ends[0]
    async with MiniEnd(here.url(1), old.costume, old.self_id, token=ONEBOT_TOKEN) as new:
        await wait_until(lambda: len(new.asked) >= 2)
        both = [old, new]
        group.ends.append(new)
        for seq in range(20):
            await group.say(f"ping b{seq}", 1100 + seq, random.Random(seq).sample(both, 2))
        await group.rest()
        # Neither is thrown out for the other: an end that were would come back at once, and so on for ever.
        assert old.closed is None
        assert new.closed is None
        old.cut()
        await wait_until(lambda: len(here.events(0, "link.closed")) == before[0] + 1)
        for seq in range(20, 30):
            await group.say(f"ping b{seq}", 1100 + seq, [new])
        await verdict(here, group, record, "one account on two workers, the older link cut")
        assert len(here.events(1, "link.closed")) == before[1]


@pytest.mark.row("F45")
async def test_rubbish_between_messages_costs_neither_link_nor_message(here: Lab, group: Room, record: Record) -> None:
    rubbish = [
        "not json",
        '{"post_type":"message"',
        "[" * 10_000 + "]" * 10_000,
        '{"post_type":"message","message_type":"group","group_id":NaN,"self_id":1}',
        '{"post_type":"wonder","self_id":1}',
        '{"post_type":"message","message_type":"group","group_id":{},"user_id":[],"message":7}',
        '{"a":1,"a":2}',
        "null",
        '"\\ud800"',
        '{"post_type":"message","message":"\\u0000"}',
    ]
    for seq in range(20):
        for end in group.ends:
            await end.write(rubbish[seq % len(rubbish)])
        await group.say(f"ping m{seq}", 1200 + seq)
    await verdict(here, group, record, "malformed frames between messages")
    assert all(end.closed is None for end in group.ends)


@pytest.mark.row("F46")
@pytest.mark.parametrize("size", [5 * MIB, 64 * MIB], ids=["5 MiB", "64 MiB"])
async def test_a_frame_beyond_the_limit_closes_its_own_link_and_takes_no_memory(
    here: Lab, group: Room, record: Record, size: int
) -> None:
    before = _resident(here, 0)
    async with MiniEnd(here.url(0), "napcat", str(int(group.ends[0].self_id) + 50), token=ONEBOT_TOKEN) as huge:
        await wait_until(lambda: len(huge.asked) >= 2)
        await group.say("ping before", 1301)
        # The worker closes as soon as it knows the size, mostly before all is written.
        with contextlib.suppress(ConnectionClosed):
            await huge.write("x" * size)
        await wait_until(lambda: huge.closed is not None)
        assert huge.closed is not None
        assert huge.closed[0] in {1009, 1006}
    await group.say("ping after", 1302)
    await verdict(here, group, record, f"a frame of {size // MIB} MiB")
    assert _resident(here, 0) - before < 2 * _LIMIT + 8 * MIB
    assert all(end.closed is None for end in group.ends)


@pytest.mark.row("F46")
async def test_a_hundred_thousand_segments_are_refused_and_the_link_is_kept(
    here: Lab, group: Room, record: Record
) -> None:
    end = group.ends[0]
    many = [{"type": "face", "data": {}}] * 30_000
    await group.tell(end, "ping many", 1401, message=many)
    await group.say("ping few", 1402)
    await verdict(here, group, record, "30 000 segments within the frame limit")
    assert end.closed is None


def _resident(here: Lab, shard: int) -> int:
    """Bytes of the worker's memory that are in use."""
    status = Path(f"/proc/{here.workers[shard].pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024
