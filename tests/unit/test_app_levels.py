"""Who may use a handler."""

from __future__ import annotations

import pytest

from pallas.levels import Level, People, level_of

PEOPLE = People(superusers=frozenset({"1", "2"}), bot_moderators=frozenset({"2", "3"}), staff=frozenset({"4"}))


def test_levels_are_ordered_as_the_pool_orders_them() -> None:
    assert [level.value for level in sorted(Level)] == [
        "everyone",
        "staff",
        "group_moderator",
        "bot_moderator",
        "superuser",
    ]
    assert Level("staff") < Level.SUPERUSER
    assert Level.SUPERUSER >= Level.SUPERUSER
    assert [level.rank for level in Level] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "user, role, expected",
    [
        ("1", "member", Level.SUPERUSER),
        ("2", "owner", Level.SUPERUSER),
        ("3", "member", Level.BOT_MODERATOR),
        ("4", "member", Level.STAFF),
        ("4", "admin", Level.GROUP_MODERATOR),
        ("5", "owner", Level.GROUP_MODERATOR),
        ("5", "admin", Level.GROUP_MODERATOR),
        ("5", "member", Level.EVERYONE),
        ("5", "", Level.EVERYONE),
        ("5", "Admin", Level.EVERYONE),
        ("", "", Level.EVERYONE),
    ],
)
def test_a_person_reaches_the_highest_level_that_a_list_or_a_role_gives(user: str, role: str, expected: Level) -> None:
    assert level_of(user, role, PEOPLE) is expected
