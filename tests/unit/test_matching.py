"""What one worker recognises by itself: copies by another account, replays by the same one, and honest repeats."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pallas.keys import Keys, encode, private_space
from pallas.model import Message
from pallas.onebot.ends import End
from pallas.onebot.wire import parse
from shard.matching import Standing, Table

SAMPLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "onebot-events.json").read_text("utf-8"))
ENDS = {str(account): End(name) for name, one in SAMPLES["implementations"].items() for account in one["accounts"]}
SPACE = "700100200"
NEW, ANOTHER, LEARNED, AGAIN = Standing.NEW, Standing.ANOTHER, Standing.LEARNED, Standing.AGAIN


def table(max_entries: int = 1000, keep_s: float = 120.0) -> Table:
    return Table(Keys("test"), max_entries=max_entries, keep_s=keep_s, keep_plain_s=keep_s)


def report(event: dict[str, Any]) -> Message:
    account = str(event["self_id"])
    message = parse(orjson.dumps(event), bot_id=account, end=ENDS[account])
    assert isinstance(message, Message)
    return message


def sample_reports() -> list[tuple[str, Message]]:
    return [(one["physical"], report(one["event"])) for one in SAMPLES["events"]]


def trap(beginning: str) -> list[Message]:
    (events,) = [one["events"] for one in SAMPLES["traps"] if one["name"].startswith(beginning)]
    return [report(event) for event in events]


def said(
    bot: str, text: str = "hi", *, seq: int | None = None, mid: str = "", user: str = "7", at: int = 1000, **more: Any
) -> Message:
    segments = [{"type": "text", "data": {"text": text}}]
    group: str = more.pop("group", SPACE)
    return Message(bot, group, user, mid, seq, at, text, (), segments, {}, **more)


def standings(known: Table, *reports: Message, space: str = SPACE, now: float = 0.0) -> list[Standing]:
    return [known.observe(message, space, now)[0] for message in reports]


def joined(first: Message, second: Message) -> Standing:
    """What the second report is, of a message of which there are two."""
    return LEARNED if first.seq is None and second.seq is not None else ANOTHER


def without_sequence(message: Message) -> Message:
    return replace(message, seq=None)


def test_nine_accounts_and_three_messages_are_three_in_every_order() -> None:
    shuffled = random.Random(1)
    reports = sample_reports()
    assert len(reports) == 27
    for _ in range(300):
        shuffled.shuffle(reports)
        known = table()
        found = [(physical, *known.observe(message, SPACE, 0.0)) for physical, message in reports]
        assert Counter(standing for _, standing, _ in found) == {NEW: 3, ANOTHER: 24}
        # Each entry stands for one message, with all nine accounts as its observers.
        assert len({(physical, id(entry)) for physical, _, entry in found}) == 3
        assert {len(entry.observers) for _, _, entry in found} == {9}


@pytest.mark.parametrize("plain", [1, 4, 9])
def test_the_truth_table_holds_where_some_accounts_or_all_report_no_sequence(plain: int) -> None:
    shuffled = random.Random(2)
    accounts = sorted(ENDS)
    for _ in range(200):
        old = set(shuffled.sample(accounts, plain))
        reports = [
            (physical, without_sequence(message) if message.bot_id in old else message)
            for physical, message in sample_reports()
        ]
        shuffled.shuffle(reports)
        known = table()
        found = [(physical, *known.observe(message, SPACE, 0.0)) for physical, message in reports]
        counts = Counter(standing for _, standing, _ in found)
        assert (counts[NEW], counts[ANOTHER] + counts[LEARNED]) == (3, 24)
        # Each message is told of with its sequence once, by whichever report brought it.
        sequenced = [(standing, message.seq) for (_, standing, _), (_, message) in zip(found, reports, strict=True)]
        told = [seq for standing, seq in sequenced if seq is not None and standing in {NEW, LEARNED}]
        assert len(told) == len(set(told)) == (0 if plain == 9 else 3)
        assert {len(entry.observers) for _, _, entry in found} == {9}
        # Identical twins may be swapped, which nobody can see; what was said differently is never joined.
        assert len({id(entry) for physical, _, entry in found if physical == "P3"}) == 1


def test_trap_a_replay_after_a_reconnect_is_seen_as_one() -> None:
    assert standings(table(), *trap("replay on the same account")) == [NEW, AGAIN]


def test_trap_a_replay_is_seen_as_one_where_the_end_reports_no_sequence() -> None:
    assert standings(table(), *map(without_sequence, trap("replay on the same account"))) == [NEW, AGAIN]


@pytest.mark.parametrize("beginning", ["quoted message not found", "string message format", "LLOneBot before"])
@pytest.mark.parametrize("plain", [(), (0,), (1,), (0, 1)])
def test_traps_of_one_message_in_two_shapes_are_one_message(beginning: str, plain: tuple[int, ...]) -> None:
    reports = [without_sequence(one) if at in plain else one for at, one in enumerate(trap(beginning))]
    assert standings(table(), *reports) == [NEW, joined(*reports)]


@pytest.mark.parametrize("beginning", ["time in milliseconds", "go-cqhttp reports message_id -1"])
@pytest.mark.parametrize("plain", [False, True])
def test_traps_of_one_odd_report_match_the_message_they_are_of(beginning: str, *, plain: bool) -> None:
    (odd,) = trap(beginning)
    ordinary = next(one for physical, one in sample_reports() if physical == "P1" and one.bot_id == "90001")
    if plain:
        odd = without_sequence(odd)
    assert standings(table(), ordinary, odd) == [NEW, joined(ordinary, odd)]
    assert standings(table(), odd, ordinary) == [NEW, joined(odd, ordinary)]


@pytest.mark.parametrize("plain", [False, True])
def test_trap_two_anonymous_members_are_two(*, plain: bool) -> None:
    reports = [without_sequence(one) if plain else one for one in trap("anonymous members")]
    others = [replace(one, bot_id="90032") for one in reversed(reports)]
    assert standings(table(), *reports, *others) == [NEW, NEW, ANOTHER, ANOTHER]


def test_every_trap_about_messages_is_tested_here() -> None:
    assert sum("notice" not in one["name"] for one in SAMPLES["traps"]) == 7


@pytest.mark.parametrize("apart_s", [0, 1, 2, 3])
@pytest.mark.parametrize("sequenced", [True, False])
def test_an_honest_repeat_is_new_however_soon_it_comes(apart_s: int, *, sequenced: bool) -> None:
    first, second = (11, 12) if sequenced else (None, None)
    reports = [
        said("a", seq=first, mid="1"),
        said("a", seq=second, mid="2", at=1000 + apart_s),
        said("b", seq=second, mid="9", at=1000 + apart_s),
        said("b", seq=first, mid="8"),
    ]
    assert standings(table(), *reports) == [NEW, NEW, ANOTHER, ANOTHER]


def test_one_account_that_reports_twins_keeps_them_apart_for_those_that_have_only_seen_one() -> None:
    known = table()
    assert standings(known, said("a", mid="1"), said("b", mid="5")) == [NEW, ANOTHER]
    assert standings(known, said("a", mid="2"), said("b", mid="6"), said("c", mid="7")) == [NEW, ANOTHER, ANOTHER]
    assert standings(known, said("c", mid="8"), said("c", mid="9")) == [ANOTHER, NEW]


def test_another_second_is_another_message_where_only_contents_can_tell() -> None:
    reports = [said("a", mid="1"), said("b", mid="2", at=1001), said("c", mid="3", at=1002)]
    assert standings(table(), *reports) == [NEW, NEW, NEW]


def test_two_sequences_are_two_messages_whatever_they_say() -> None:
    assert standings(table(), said("p", mid="1"), said("a", seq=1), said("b", seq=2)) == [NEW, LEARNED, NEW]


@pytest.mark.parametrize(
    "other",
    [{"user": "8"}, {"at": 1000 + 3601}, {"at": 1000 - 3601}],
    ids=["sender", "later", "before"],
)
def test_a_sequence_says_the_same_only_for_the_same_person_within_an_hour(other: dict[str, Any]) -> None:
    assert standings(table(), said("a", seq=5), said("b", seq=5, **other)) == [NEW, NEW]
    assert standings(table(), said("a", seq=5), said("b", seq=5, at=1000 + 3600)) == [NEW, ANOTHER]


def test_an_invented_sequence_of_another_person_does_not_hide_the_message() -> None:
    known = table()
    assert standings(known, said("liar", seq=5, user="666")) == [NEW]
    assert standings(known, said("a", seq=5), said("b", seq=5), said("a", seq=5)) == [NEW, ANOTHER, AGAIN]


def test_a_group_compares_contents_from_the_first_report_without_a_sequence_on() -> None:
    known = table()
    assert standings(known, said("a", seq=1), said("a", "other", seq=2), said("a", seq=3)) == [NEW, NEW, NEW]
    assert not known.group(SPACE).plain
    assert standings(known, said("p", mid="1"), said("p", mid="2"), said("p", mid="3")) == [ANOTHER, ANOTHER, NEW]
    assert known.group(SPACE).plain
    assert standings(known, said("p", "other", mid="4"), said("b", seq=3)) == [ANOTHER, ANOTHER]


def test_a_sequence_that_comes_later_is_learned_and_then_decides() -> None:
    known = table()
    assert standings(known, said("p", mid="1"), said("a", seq=9)) == [NEW, LEARNED]
    assert standings(known, said("b", seq=9), said("c", seq=9, at=1002), said("a", seq=9)) == [ANOTHER, ANOTHER, AGAIN]


def test_a_report_without_sequence_and_id_is_matched_by_content_alone() -> None:
    known = table()
    assert standings(known, said("p"), said("q"), said("p"), said("q")) == [NEW, ANOTHER, NEW, ANOTHER]


def test_one_id_for_different_texts_is_no_replay() -> None:
    known = table()
    assert standings(known, said("p", "one", mid="1"), said("p", "two", mid="1")) == [NEW, NEW]
    assert standings(known, said("p", "two", mid="1")) == [AGAIN]


def test_a_replay_that_comes_after_another_account_is_still_one() -> None:
    known = table()
    assert standings(known, said("p", mid="1"), said("q", mid="4"), said("q", mid="4"), said("p", mid="1")) == [
        NEW,
        ANOTHER,
        AGAIN,
        AGAIN,
    ]


@pytest.mark.parametrize(
    "odd", ["", "[sticker]", "@全体成员 hello", "/go", " blank first", "x" * 5000, "签到", "é", "e\u0301"]
)
def test_an_entry_that_is_given_its_content_later_matches_what_was_said(odd: str) -> None:
    known = table()
    assert standings(known, said("a", odd, seq=1), said("a", odd + "?", seq=2)) == [NEW, NEW]
    assert standings(known, said("p", odd + "?", mid="1"), said("p", odd, mid="2")) == [ANOTHER, ANOTHER]


def test_a_picture_without_text_is_compared_by_its_digest_when_the_group_turns() -> None:
    def picture(bot: str, md5: str, seq: int | None) -> Message:
        segments = [{"type": "image", "data": {"file": f"{md5}.jpg"}}]
        return replace(said(bot, "", seq=seq, mid=md5), raw_segments=segments)

    known = table()
    assert standings(known, picture("a", "0" * 32, 1), picture("a", "F" * 32, 2)) == [NEW, NEW]
    assert standings(known, picture("p", "f" * 32, None), picture("p", "1" * 32, None)) == [ANOTHER, NEW]


def test_private_chats_never_match_across_accounts() -> None:
    known = table()
    for bot in ("a", "b"):
        assert standings(known, said(bot, mid="1", group=""), space=private_space(bot, "7")) == [NEW]
    assert standings(known, said("a", mid="1", group=""), space=private_space("a", "7")) == [AGAIN]


def test_groups_do_not_know_each_others_ids_and_sequences() -> None:
    known = table()
    assert standings(known, said("a", seq=1, mid="1"), said("p", mid="1")) == [NEW, ANOTHER]
    assert standings(known, said("a", seq=1, mid="1"), said("p", mid="1"), space="other") == [NEW, ANOTHER]


def test_what_is_too_old_is_forgotten_and_groups_with_it() -> None:
    known = table(keep_s=10)
    for group in range(50):
        known.observe(said("a", seq=1), encode(f"g{group}"), now=0.0)
    assert (len(known), len(known._groups)) == (50, 50)
    assert known.observe(said("a", seq=1), "g0", now=10.0)[0] is AGAIN
    assert known.observe(said("a", seq=1), "g0", now=11.1)[0] is NEW
    assert (len(known), len(known._groups)) == (1, 1)


def test_the_number_of_entries_is_bounded_and_the_oldest_go_first() -> None:
    known = table(max_entries=100)
    for number in range(1000):
        known.observe(said("a", str(number), seq=number if number % 3 else None, mid=str(number)), SPACE, 0.0)
        assert len(known) <= 100
    assert standings(known, said("a", "999", mid="999"), said("a", "998", seq=998)) == [AGAIN, AGAIN]
    assert standings(known, said("a", "1", seq=1)) == [NEW]


def test_nothing_is_left_of_entries_that_were_forgotten() -> None:
    known = table(max_entries=50)
    rng = random.Random(3)
    for number in range(3000):
        seq = rng.choice([None, rng.randrange(40)])
        known.observe(said(rng.choice("abc"), rng.choice("xyz"), seq=seq, mid=str(number), at=number // 50), SPACE, 0.0)
    group = known.group(SPACE)
    kept = {id(entry) for order in (known._order, known._plain_order) for entry in order}
    indexed = [*group.seqs.values(), *group.marks.values(), *(one for twins in group.bodies.values() for one in twins)]
    assert {id(entry) for entry in indexed} <= kept
    assert len(group.marks) <= 50 * 3
    known.observe(said("a", seq=1), "other", now=1e6)
    assert len(known) == 1
    assert list(known._groups) == ["other"]


def test_a_mark_that_was_given_to_a_later_message_survives_the_earlier_one() -> None:
    known = table(max_entries=3)
    assert standings(known, said("p", "one", mid="1"), said("p", "two", mid="1")) == [NEW, NEW]
    assert standings(known, said("p", "three", mid="2"), said("p", "two", mid="1")) == [NEW, AGAIN]


def test_an_entry_keeps_nothing_of_what_its_message_carried() -> None:
    message = said("a", seq=1)
    message.raw_segments.append({"type": "image", "data": {"file": "base64://" + "A" * 100_000}})
    long = said("a", "x" * 100_000, seq=2)
    known = table()
    for one in (message, long):
        _, entry = known.observe(one, SPACE, 0.0)
        held = [getattr(entry, name) for name in type(entry).__slots__]
        assert not any(value is one or value is one.raw_segments for value in held)
        assert all(len(value) < 1000 for value in held if isinstance(value, str | bytes))


def test_one_person_who_repeats_one_text_without_end_costs_no_growing_time() -> None:
    known = table(max_entries=5000)
    assert set(standings(known, *(said("p", mid=str(number)) for number in range(3000)))) == {NEW}
    ((twins),) = known.group(SPACE).bodies.values()
    assert len(twins) <= 100


@dataclass(slots=True)
class Known:
    who: tuple[str, str, int]
    seq: int | None
    observers: list[str]
    ids: set[tuple[str, str]] = field(default_factory=set)


class Naive:
    """Twenty lines that say what a worker must recognise."""

    def __init__(self) -> None:
        self.known: list[Known] = []
        self.plain = False

    def observe(self, one: Message) -> Standing:
        who = (one.user_id, one.text, one.time_s)
        found = None
        if one.seq is not None:
            found = next((each for each in self.known if each.seq == one.seq and each.who[0] == one.user_id), None)
        else:
            self.plain = True
            found = next((each for each in self.known if (one.bot_id, one.message_id) in each.ids), None)
        if found is None and self.plain:
            for each in self.known:
                fits = each.who == who and one.bot_id not in each.observers
                if fits and (one.seq is None or each.seq is None):
                    found = each
                    break
        if found is None:
            self.known.append(found := Known(who, one.seq, []))
        standing = NEW if not found.observers else AGAIN if one.bot_id in found.observers else ANOTHER
        if standing is ANOTHER and found.seq is None and one.seq is not None:
            standing = LEARNED
        if standing is not AGAIN:
            found.observers.append(one.bot_id)
            if one.seq is None:
                found.ids.add((one.bot_id, one.message_id))
            else:
                found.seq = one.seq
        return standing


@st.composite
def traffic(draw: st.DrawFn) -> tuple[list[tuple[int, Message]], list[str]]:
    """Reports of some messages, in any order, with losses and replays; and which accounts report no sequence."""
    accounts = "abcde"[: draw(st.integers(1, 5))]
    plain = [one for one in accounts if draw(st.booleans())]
    messages = draw(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("78"), st.integers(0, 1)), max_size=6))
    reports = []
    for number, (text, user, second) in enumerate(messages):
        for bot in accounts:
            one = said(bot, text, seq=None if bot in plain else number, mid=f"{number}", user=user, at=1000 + second)
            reports += [(number, one)] * draw(st.sampled_from([0, 1, 1, 1, 2]))
    return draw(st.permutations(reports)), plain


@settings(max_examples=400, deadline=None)
@given(traffic())
def test_the_table_agrees_with_the_naive_model(drawn: tuple[list[tuple[int, Message]], list[str]]) -> None:
    reports, plain = drawn
    known, model = table(), Naive()
    found = [known.observe(one, SPACE, 0.0)[0] for _, one in reports]
    assert found == [model.observe(one) for _, one in reports]

    # And with what can be known at all: of one content in one second, as many as have different sequences, or as
    # any one account without sequences reported.
    def new_of(content: tuple[str, str, int]) -> int:
        return sum(
            standing is NEW and content == (one.text, one.user_id, one.time_s)
            for standing, (_, one) in zip(found, reports, strict=True)
        )

    for content in {(one.text, one.user_id, one.time_s) for _, one in reports}:
        of_it = {(number, one.bot_id) for number, one in reports if content == (one.text, one.user_id, one.time_s)}
        sequences = len({number for number, bot in of_it if bot not in plain})
        most = max([sequences, *(sum(bot == each for _, bot in of_it) for each in plain)])
        assert new_of(content) == most


def test_where_an_end_reports_no_sequences_a_message_is_known_as_long_as_it_may_be_reported() -> None:
    known = Table(Keys("test"), max_entries=1000, keep_s=10, keep_plain_s=600)
    known.observe(said("a", seq=1), encode("quick"), now=0.0)
    assert known.observe(said("a", mid="1"), SPACE, now=0.0)[0] is NEW
    known.observe(said("b", seq=2), encode("quick"), now=300.0)
    assert known.observe(said("b", mid="9"), SPACE, now=599.0)[0] is ANOTHER
    assert known.observe(said("a", seq=1), encode("quick"), now=599.0)[0] is NEW
    assert known.observe(said("c", mid="9"), SPACE, now=602.0)[0] is NEW


def test_entries_that_a_sequence_finds_again_give_way_first() -> None:
    known = Table(Keys("test"), max_entries=10, keep_s=600, keep_plain_s=600)
    assert known.observe(said("a", mid="1"), SPACE, now=0.0)[0] is NEW
    for number in range(50):
        known.observe(said("x", seq=number), encode("quick"), now=1.0)
    assert known.observe(said("b", mid="2"), SPACE, now=2.0)[0] is ANOTHER
