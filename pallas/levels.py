"""Who may use a handler: the five levels of the pool, in order, and which of them a person reaches.

A pure rule on what the report says of the sender and on the deployment's own lists. A role is what the reporting
end believes and may be stale; the lists are the operator's word and win.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import total_ordering


@total_ordering
class Level(Enum):
    """What a handler asks of a person; the values are the words that deployments of a pool exchange."""

    EVERYONE = "everyone"
    STAFF = "staff"
    GROUP_MODERATOR = "group_moderator"
    BOT_MODERATOR = "bot_moderator"
    SUPERUSER = "superuser"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for everyone."""
        return _RANKS[self.value]

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Level):
            return NotImplemented
        return _RANKS[self.value] < _RANKS[other.value]


_RANKS = {level.value: rank for rank, level in enumerate(Level)}


@dataclass(slots=True, frozen=True)
class People:
    """The operator's lists of user ids."""

    superusers: frozenset[str] = frozenset()
    bot_moderators: frozenset[str] = frozenset()
    staff: frozenset[str] = frozenset()


def level_of(user_id: str, role: str, people: People) -> Level:
    """The highest level that a person reaches; `role` is the sender's role in the group, empty in a private chat.

    A group's owner and its admins are its moderators, whatever list they are missing from.
    """
    if user_id in people.superusers:
        return Level.SUPERUSER
    if user_id in people.bot_moderators:
        return Level.BOT_MODERATOR
    if role in ("admin", "owner"):
        return Level.GROUP_MODERATOR
    if user_id in people.staff:
        return Level.STAFF
    return Level.EVERYONE
