"""Accounts and their links: which one speaks, and what a link that closes late must not touch."""

from __future__ import annotations

from pallas.model import Heartbeat
from pallas.onebot.ends import End
from pallas.onebot.link import Link, Role
from shard.roster import Account, Roster


class Quiet:
    """A socket that takes everything."""

    async def write(self, frame: bytes) -> None:
        pass

    async def close(self, code: int, reason: str) -> None:
        pass


def link(number: int, bot_id: str = "1", role: Role = Role.UNIVERSAL, end: End = End.NAPCAT, version: str = "") -> Link:
    return Link(
        Quiet(), number, bot_id=bot_id, role=role, end=end, version=version, user_agent="", peer="", opened_at=0.0
    )


def closed(one: Link) -> Link:
    one.lost()
    return one


def test_the_newest_open_link_speaks() -> None:
    roster = Roster()
    first, second = link(1), link(2)
    account = roster.join(first, 10.0)
    assert account.speaker() is first
    assert roster.join(second, 20.0) is account
    assert account.speaker() is second
    second.lost()
    assert account.speaker() is first


def test_a_link_for_events_never_speaks_whatever_the_order_they_opened_in() -> None:
    for roles in ((Role.API, Role.EVENT), (Role.EVENT, Role.API)):
        roster = Roster()
        pair = [link(number, role=role) for number, role in enumerate(roles)]
        for one in pair:
            account = roster.join(one, 0.0)
        assert account.speaker() is pair[roles.index(Role.API)]
    only = Roster().join(link(1, role=Role.EVENT), 0.0)
    assert only.speaker() is None


def test_a_late_close_of_the_old_link_leaves_the_new_one_alone() -> None:
    roster = Roster()
    old, new = link(1), link(2)
    account = roster.join(old, 10.0)
    roster.join(new, 20.0)
    assert roster.leave(closed(old)) is False
    assert roster.get("1") is account
    assert account.speaker() is new
    assert account.connected_at == 10.0


def test_only_the_last_link_ends_the_account_and_only_once() -> None:
    roster = Roster()
    one = link(1)
    roster.join(one, 0.0)
    assert roster.leave(closed(one)) is True
    assert roster.leave(one) is False
    assert (roster.get("1"), len(roster), "1" in roster, list(roster)) == (None, 0, False, [])


def test_a_link_that_never_told_its_account_ends_nobody() -> None:
    assert Roster().leave(link(1, bot_id="")) is False


def test_what_is_known_of_an_account_survives_its_links() -> None:
    roster = Roster()
    for number in range(1, 4):
        one = link(number, version="4.9" if number == 1 else "")
        account = roster.join(one, float(number))
        account.last_event_at = 5.0
        account.nickname = "somebody"
        roster.leave(closed(one))
    account = roster.join(link(9), 50.0)
    assert (account.reconnects, account.connected_at) == (3, 50.0)
    assert (account.last_event_at, account.nickname, account.version) == (5.0, "somebody", "4.9")
    assert len(account.links) == 1


def test_what_an_end_said_of_itself_before_it_left_is_not_believed_after_it_came_back() -> None:
    roster = Roster()
    one = link(1)
    roster.join(one, 0.0).beat(Heartbeat("1", online=False, interval_ms=5000, time_s=1), 1.0)
    roster.leave(closed(one))
    assert roster.join(link(2), 2.0).online is None


def test_accounts_that_left_are_remembered_in_a_bounded_number() -> None:
    roster = Roster()
    for number in range(10_000):
        one = link(number, bot_id=str(number))
        roster.join(one, 0.0)
        roster.leave(closed(one))
    assert len(roster._former) < 5000
    assert roster.join(link(1, bot_id="9999"), 0.0).reconnects == 1
    assert roster.join(link(1, bot_id="1"), 0.0).reconnects == 0


def test_how_ends_behaved_is_remembered_as_long_as_their_accounts() -> None:
    roster = Roster()
    roster.join(link(0, bot_id="stays"), 0.0)
    roster.conducts["stays"].reports = 7
    for number in range(1, 10_000):
        one = link(number, bot_id=str(number))
        roster.join(one, 0.0)
        roster.conducts[str(number)].reports = number
        roster.leave(closed(one))
    assert roster.conducts["stays"].reports == 7
    assert roster.conducts["9999"].reports == 9999
    assert len(roster.conducts) <= len(roster) + len(roster._former) + 65


def test_a_late_report_of_a_forgotten_account_is_not_kept_for_ever() -> None:
    roster = Roster()
    for number in range(10_000):
        one = link(number, bot_id=str(number))
        roster.join(one, 0.0)
        roster.leave(closed(one))
        # It was still waiting to be looked at.
        roster.conducts[str(number - 5000)].reports += 1
    assert len(roster.conducts) <= len(roster._former) + 65


def test_a_second_link_that_is_not_recognised_does_not_make_the_end_unknown() -> None:
    roster = Roster()
    roster.join(link(1, end=End.LAGRANGE, version="1"), 0.0)
    account = roster.join(link(2, end=End.UNKNOWN), 0.0)
    assert (account.end, account.version) == (End.LAGRANGE, "1")


def test_reconnecting_a_hundred_times_leaves_one_link_and_one_account() -> None:
    roster = Roster()
    previous: Link | None = None
    for number in range(100):
        current = link(number)
        account = roster.join(current, float(number))
        if previous is not None:
            roster.leave(closed(previous))
        previous = current
    assert len(roster) == 1
    assert account.links == [previous]


def test_an_account_is_shown_without_secrets() -> None:
    assert repr(Account("1")) == "<Account 1 unknown links=0>"
