"""What the reports of an account say about its end: one rule after another, and none against an end that is well."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from pallas.keys import Keys
from pallas.metrics import MeterCollector, Meters, exposition
from pallas.model import Message
from shard.conduct import ADVICE, Conduct, Conducts, Fault, read_conduct
from shard.matching import Table
from shard.selfcheck import SelfCheck

GROUP = "700100200"
_SEGMENTS = [{"type": "text", "data": {"text": "hi"}}]


class Hall:
    """A table with its accounts' conduct; each message is said at a second of its own."""

    def __init__(self) -> None:
        self.conducts = Conducts()
        self.table = Table(Keys("test"), max_entries=10_000, keep_s=60, keep_plain_s=60, conducts=self.conducts)
        self.second = 1000
        self.number = 0

    def say(
        self, *bots: str, seq: bool = True, text: str = "", odd: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        """One message, reported by these accounts in this order; `odd` replaces fields of an account's report."""
        self.second += 10
        self.number += 1
        for bot in bots:
            fields: dict[str, Any] = {
                "seq": self.number if seq else None,
                "mid": f"{self.number}",
                "late": 0,
                "user": "7",
            }
            fields.update((odd or {}).get(bot, {}))
            message = Message(
                bot,
                fields.get("group", GROUP),
                fields["user"],
                fields["mid"],
                fields["seq"],
                self.second + fields["late"],
                text or f"hi {self.number}",
                (),
                _SEGMENTS,
                {},
            )
            for _ in range(fields.get("times", 1)):
                self.table.observe(message, fields.get("group") or GROUP, 0.0)

    def faults(self) -> dict[str, frozenset[Fault]]:
        """What is found wrong with whom, now."""
        for conduct in self.conducts.values():
            conduct.judge()
        return {bot: conduct.faults for bot, conduct in self.conducts.items() if conduct.faults}


def test_ends_that_are_well_are_not_suspected() -> None:
    hall, rng = Hall(), random.Random(1)
    for number in range(500):
        bots = rng.sample("abcd", rng.randint(1, 4))
        hall.say(*bots, odd={bots[0]: {"times": 2}} if number % 50 == 0 else None)
    assert hall.faults() == {}
    assert not any(conduct.is_off for conduct in hall.conducts.values())
    assert hall.conducts["a"].replays <= 10


def test_what_is_counted_of_an_account() -> None:
    hall = Hall()
    hall.say("a", "b", odd={"b": {"late": 1}})
    hall.say("a", "b", odd={"b": {"late": 30, "mid": ""}})
    hall.say("a", "b", odd={"b": {"seq": None, "times": 2}})
    hall.say("a", "b", odd={"b": {"user": "8"}})
    counts = hall.conducts["b"].as_dict()
    assert counts == {
        "reports": 5,
        "matched": 3,
        "without_seq": 2,
        "without_id": 1,
        "replays": 1,
        "times_off": 2,
        "conflicts": 1,
        "clock_off": False,
        "faults": [],
    }
    assert hall.conducts["b"].with_seq == 3


def test_private_chats_carry_no_sequence_and_nobody_is_blamed_for_it() -> None:
    hall = Hall()
    for _ in range(50):
        hall.say("a", odd={"a": {"group": "", "seq": None}})
    assert hall.faults() == {}
    assert (hall.conducts["a"].without_seq, hall.conducts["a"].with_seq) == (0, 0)


@pytest.mark.parametrize("late", [1, -1])
def test_an_account_whose_clock_is_a_second_off_is_told_from_those_it_is_compared_with(late: int) -> None:
    hall, rng = Hall(), random.Random(2)
    for _ in range(40):
        bots = rng.sample("abcd", 4)
        hall.say(*bots, odd={"d": {"late": late}})
    assert hall.faults() == {"d": {Fault.CLOCK_OFF}}
    assert hall.conducts["d"].is_off


def test_a_clock_that_is_far_off_is_told_by_the_sequences_alone() -> None:
    hall, rng = Hall(), random.Random(3)
    for _ in range(40):
        hall.say(*rng.sample("abcd", 4), odd={"d": {"late": 40}})
    assert hall.faults() == {"d": {Fault.CLOCK_OFF}}
    assert not hall.conducts["d"].is_off, "a second of tolerance would not help"


def test_without_sequences_a_clock_is_found_off_by_what_nearly_matched() -> None:
    hall, rng = Hall(), random.Random(4)
    for _ in range(20):
        hall.say(*rng.sample("abc", 3), seq=False, odd={"c": {"late": 1, "seq": None}})
    hall.faults()
    assert hall.conducts["c"].is_off
    assert hall.conducts["c"].missed >= 6


def test_a_clock_that_agrees_again_counts_as_right_again() -> None:
    hall = Hall()
    for _ in range(10):
        hall.say("a", "b", odd={"b": {"late": 1}})
    hall.faults()
    assert hall.conducts["b"].is_off
    for _ in range(54):
        hall.say("a", "b")
    hall.faults()
    assert hall.conducts["b"].is_off, "64 comparisons make a judgement, and ten of them were off"
    for _ in range(64):
        hall.say("a", "b")
    assert hall.faults() == {}
    assert not hall.conducts["b"].is_off


def test_people_who_repeat_themselves_after_a_second_make_no_clock_wrong() -> None:
    hall = Hall()
    for number in range(300):
        if number % 40:
            hall.say("a", "b", "c", seq=False)
            continue
        # The same words again, a second later; c lost the first report, and the others the second.
        hall.say("a", "b", seq=False, text="+1")
        hall.second -= 9
        hall.say("c", seq=False, text="+1")
        hall.second += 9
    assert hall.conducts["c"].missed >= 6
    assert not any(Fault.CLOCK_OFF in faults for faults in hall.faults().values())
    assert not any(conduct.is_off for conduct in hall.conducts.values())


def test_an_end_without_sequences_is_named_and_what_to_update() -> None:
    hall = Hall()
    for _ in range(4):
        hall.say("a", "b", odd={"b": {"seq": None}})
    assert hall.faults() == {}
    hall.say("a", "b", odd={"b": {"seq": None}})
    assert hall.faults() == {"b": {Fault.NO_SEQUENCE}}


def test_sequences_that_belong_to_others_are_noticed() -> None:
    hall, rng = Hall(), random.Random(5)
    for number in range(60):
        hall.say(*rng.sample("abcd", 4), odd={"d": {"seq": number, "user": "666"}})
    assert Fault.WRONG_SEQUENCE in hall.faults()["d"]
    assert hall.conducts["d"].conflicts >= 20


def test_an_end_that_gives_no_message_ids_is_noticed() -> None:
    hall = Hall()
    for _ in range(20):
        hall.say("a", "b", odd={"b": {"mid": ""}})
    assert hall.faults() == {"b": {Fault.NO_MESSAGE_ID}}


def test_an_end_that_reports_everything_twice_is_noticed() -> None:
    hall = Hall()
    for _ in range(20):
        hall.say("a", "b", odd={"b": {"times": 2}})
    assert hall.faults() == {"b": {Fault.REPLAYS}}


def test_an_account_that_never_matches_those_of_its_group_is_noticed() -> None:
    hall = Hall()
    for _ in range(45):
        hall.say("a", "b", odd={"c": {}})
        hall.say("c", odd={"c": {"late": 3, "seq": 30_000 + hall.number}})
    assert hall.faults() == {"c": {Fault.NEVER_MATCHED}}


def test_an_account_that_is_alone_in_its_group_has_nobody_to_match() -> None:
    hall = Hall()
    for _ in range(100):
        hall.say("a")
    assert hall.faults() == {}


async def test_a_suspect_is_logged_once_with_what_to_do_and_once_when_it_is_mended() -> None:
    hall, meters = Hall(), Meters()
    check = SelfCheck(hall.conducts, meters)
    with capture_logs() as logs:
        for _ in range(30):
            hall.say("a", "b", odd={"b": {"mid": ""}})
            await check.look()
        for _ in range(200):
            hall.say("a", "b")
            await check.look()
    told = [line for line in logs if line["event"] in {"end.suspect", "end.mended"}]
    assert [(line["event"], line["bot_id"], line.get("key") or line["fault"]) for line in told] == [
        ("end.suspect", "b", "no_message_id"),
        ("end.mended", "b", "no_message_id"),
    ]
    assert told[0]["hint"] == ADVICE[Fault.NO_MESSAGE_ID]
    assert told[0]["counts"]["without_id"] == 20


async def test_a_whole_fleet_of_suspects_writes_a_bounded_number_of_lines() -> None:
    hall = Hall()
    check = SelfCheck(hall.conducts, Meters())
    for _ in range(10):
        hall.say(*(str(bot) for bot in range(100)), seq=False)
    with capture_logs() as logs:
        await check.look()
    assert 1 <= sum(line["event"] == "end.suspect" for line in logs) <= 6


async def test_metrics_show_kinds_and_numbers_and_no_ids() -> None:
    hall, meters = Hall(), Meters()
    check = SelfCheck(hall.conducts, meters)
    for _ in range(20):
        hall.say("1900000001", "1900000002", odd={"1900000002": {"mid": ""}})
    await check.look()
    text = exposition(MeterCollector(meters)).decode()
    assert 'pallas_identity_oddities_total{kind="without_id"} 20.0' in text
    assert 'pallas_identity_suspects{fault="no_message_id"} 1.0' in text
    assert 'pallas_identity_suspects{fault="replays"} 0.0' in text
    assert "19000000" not in text


async def test_accounts_that_were_forgotten_take_no_room_and_still_count() -> None:
    hall, meters = Hall(), Meters()
    check = SelfCheck(hall.conducts, meters)
    for number in range(200):
        hall.say(f"{number}", odd={f"{number}": {"mid": ""}})
        await check.look()
        del hall.conducts[f"{number}"]
    await check.look()
    assert meters.oddities["without_id"] == 200, "a counter never falls"
    assert len(check._looked) == 0
    # One that comes back is another, and its reports count from the first.
    hall.say("0", odd={"0": {"mid": ""}})
    await check.look()
    await check.look()
    assert meters.oddities["without_id"] == 201


async def test_an_account_that_comes_back_between_two_looks_counts_from_its_first_report() -> None:
    hall, meters = Hall(), Meters()
    check = SelfCheck(hall.conducts, meters)
    for _ in range(3):
        hall.say("a", odd={"a": {"mid": ""}})
        await check.look()
        del hall.conducts["a"]
    hall.say("a", odd={"a": {"mid": ""}})
    await check.look()
    assert meters.oddities["without_id"] == 4


def test_stored_conduct_is_read_as_it_was_written_and_nothing_else() -> None:
    written = Conduct().as_dict()
    assert read_conduct(written) == written
    assert read_conduct({**written, "faults": ["replays", "<b>"]})["faults"] == ["replays"]
    strangers: list[object] = [None, [], "x", {}, {**written, "reports": "9"}]
    for foreign in strangers:
        assert read_conduct(foreign) == {}
