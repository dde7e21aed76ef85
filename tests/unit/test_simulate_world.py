"""The simulated world is the same for the same seed, and as unkind as its options say."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest

from pallas.errors import SettingsError
from pallas.simulate.options import Options, address_of
from pallas.simulate.world import Impl, Physical, World

URLS = ("ws://127.0.0.1:8090/onebot/v11/ws", "ws://127.0.0.1:8091/onebot/v11/ws")
OPTIONS = Options(urls=URLS, messages=2000, rate=200, groups=12, seed=3)


def wanted(world: World) -> list[Physical]:
    return [message for message in world.messages() if message.said.wanted]


def test_the_same_seed_and_origin_give_the_same_world() -> None:
    first, second = World(OPTIONS, 77), World(OPTIONS, 77)
    assert first.accounts == second.accounts
    assert first.groups == second.groups
    assert list(first.messages()) == list(second.messages())
    assert list(first.messages()) == list(first.messages())


def test_another_seed_gives_another_world() -> None:
    assert list(World(OPTIONS, 77).messages()) != list(World(replace(OPTIONS, seed=4), 77).messages())


def test_a_later_run_keeps_accounts_and_groups_but_resembles_the_earlier_one_in_nothing_else() -> None:
    first, second = World(OPTIONS, 77), World(OPTIONS, 78)
    assert first.accounts == second.accounts
    assert [group.group_id for group in first.groups] == [group.group_id for group in second.groups]
    people = [{m.user_id for group in world.groups for m in group.members} for world in (first, second)]
    assert not people[0] & people[1]
    seen = [{(m.said.group.group_id, m.said.text) for m in wanted(world)} for world in (first, second)]
    assert not seen[0] & seen[1]


def test_the_same_seed_gives_the_same_traffic_whenever_the_run_begins() -> None:
    first, second = (list(World(OPTIONS, origin).messages()) for origin in (77, 1_700_000_000))
    for one, other in zip(first, second, strict=True):
        assert one.said.group.accounts == other.said.group.accounts
        assert (one.at_s, one.repeat, one.reports) == (other.at_s, other.repeat, other.reports)
        assert one.random != other.random


def test_all_four_ends_are_on_every_worker() -> None:
    accounts = World(OPTIONS).accounts
    assert {(account.impl, account.url) for account in accounts} == {(impl, url) for impl in Impl for url in URLS}
    assert {account.self_id for account in accounts}.isdisjoint(
        member.user_id for group in World(OPTIONS).groups for member in group.members
    )


@pytest.mark.parametrize("accounts", [2, 4, 8, 30])
def test_every_group_is_seen_through_two_workers_and_every_account_is_in_a_group(accounts: int) -> None:
    world = World(replace(OPTIONS, accounts=accounts))
    for group in world.groups:
        assert {world.accounts[index].url for index in group.accounts} == set(URLS)
    assert {index for group in world.groups for index in group.accounts} == set(range(accounts))


def test_a_single_account_has_its_groups_to_itself() -> None:
    world = World(replace(OPTIONS, accounts=1, messages=50))
    assert {group.accounts for group in world.groups} == {(0,)}
    assert all(message.reports for message in world.messages())


def test_messages_come_in_the_order_of_their_time_at_the_rate_asked_for() -> None:
    messages = list(World(OPTIONS).messages())
    assert all(one.at_s <= next_.at_s for one, next_ in pairwise(messages))
    assert messages[-1].at_s == pytest.approx(2000 / 200, abs=0.05)
    assert sum(message.said.wanted for message in messages) == 2000


def test_a_groups_sequence_rises_lies_beyond_16_bits_and_wraps_them_in_some_groups() -> None:
    sequences: dict[int, list[int]] = defaultdict(list)
    for message in World(OPTIONS, 77).messages():
        sequences[message.said.group.group_id].append(message.seq)
    for numbers in sequences.values():
        assert all(one < next_ for one, next_ in pairwise(numbers))
        assert numbers[0] > 0xFFFF
        assert numbers[-1] < 1 << 32
    wrapped = [numbers for numbers in sequences.values() if numbers[0] >> 16 != numbers[-1] >> 16]
    assert 4 <= len(wrapped) < len(sequences)


def test_fifteen_percent_are_honest_repeats_by_the_same_person_often_within_one_second() -> None:
    messages = wanted(World(OPTIONS))
    repeats = [message for message in messages if message.repeat]
    assert 0.13 < len(repeats) / len(messages) < 0.17
    said = Counter(id(message.said) for message in messages)
    assert len(messages) - len(said) == len(repeats)
    seconds: dict[int, list[float]] = defaultdict(list)
    for message in messages:
        seconds[id(message.said)].append(message.at_s)
    close = sum(one // 1 == next_ // 1 for times in seconds.values() for one, next_ in pairwise(times))
    assert close > 0.4 * len(repeats)
    keys = {(message.said.group.group_id, message.seq) for message in messages}
    assert len(keys) == len(messages)


def test_repeats_within_one_second_happen_at_low_rates_too() -> None:
    messages = wanted(World(replace(OPTIONS, rate=0.5, messages=400)))
    assert any(
        one.said is next_.said and one.at_s // 1 == next_.at_s // 1 and one.seq != next_.seq
        for one, next_ in pairwise(messages)
    )


def test_reports_are_lost_copied_delayed_and_reordered_as_asked_but_never_all_lost() -> None:
    messages = list(World(OPTIONS).messages())
    possible = sum(len(message.said.group.accounts) for message in messages)
    reports = [report for message in messages for report in message.reports]
    assert all(message.reports for message in messages)
    assert all({r.account for r in m.reports} <= set(m.said.group.accounts) for m in messages)
    assert 0.006 < 1 - len(reports) / possible < 0.014
    assert 0.025 < sum(len(report.copies_s) for report in reports) / len(reports) < 0.035
    assert all(0 <= report.delay_s <= 3 for report in reports)
    assert any(report.delay_s > 2.7 for report in reports)
    arrivals = [message.at_s + message.reports[0].delay_s for message in messages]
    assert any(one > next_ for one, next_ in pairwise(arrivals))


def test_a_message_that_everybody_would_miss_is_left_to_one_account() -> None:
    messages = list(World(replace(OPTIONS, losses=0.9, messages=300)).messages())
    assert all(message.reports for message in messages)
    assert Counter(len(message.reports) for message in messages)[1] > 200


def test_no_chatter_is_a_ping_and_every_ping_carries_its_text_in_its_pieces() -> None:
    messages = list(World(OPTIONS).messages())
    for message in messages:
        said = message.said
        typed = "".join(piece.value for piece in said.pieces if piece.kind == "text").strip()
        assert typed == said.text
        assert said.text.startswith("ping ") == said.wanted
    assert sum(not message.said.wanted for message in messages) == 200
    kinds = {piece.kind for message in messages for piece in message.said.pieces}
    assert kinds == {"text", "at", "at_all", "face", "image", "sticker"}
    assert any("[CQ:at,qq=1]" in message.said.text for message in messages)


def test_shares_of_accounts_are_renewed_and_too_old_for_sequences_as_asked() -> None:
    accounts = World(replace(OPTIONS, accounts=20, renewals=0.25, plain=0.5)).accounts
    assert sum(account.renew_at_s is not None for account in accounts) == 5
    assert sum(not account.sequenced for account in accounts) == 10


def test_options_that_cannot_work_are_all_named_without_credentials() -> None:
    with pytest.raises(SettingsError) as caught:
        Options(urls=("http://me:hush@127.0.0.1:1/x?access_token=hush",), rate=0, losses=2)
    text = str(caught.value)
    assert "rate is 0" in text
    assert "losses is 2" in text
    assert "http://127.0.0.1:1/x" in text
    assert "hush" not in text
    with pytest.raises(SettingsError, match="at least one worker address"):
        Options()
    assert "hush" not in repr(Options(urls=URLS, token="hush"))
    assert address_of("ws://[::1]:8090/onebot?x=1") == "ws://[::1]:8090/onebot"
