"""Every key this project writes, its type and how long it lives.

| key | type | content | TTL |
|---|---|---|---|
| `{p}:deployment` | string | deployment id that owns the prefix | none |
| `{p}:{ctl}:epoch` | string | last worker epoch given out | none |
| `{p}:{ctl}:leases` | hash | shard → `epoch|until_ms|attempt|info` | 1 day after the last renewal |
| `{p}:presence:bots` | hash | account → presence record (JSON) | 1 day after the last write |
| `{p}:presence:fleet` | hash | account → last seen, name (JSON); all that ever connected | 90 days after it |
| `{p}:presence:terms` | hash | account → until when it asks for contents, for tolerance | 1 day after the last one |
| `{p}:worker:<shard>` | string | a worker's counters (JSON) | 60 s |
| `{p}:ready:<name>` | string | what the readiness probe writes | 60 s |
| `{p}:{bb}:q:<space>:<seq/64>` | hash | sequence & 63 → records | claim TTL |
| `{p}:{bb}:t:<space>:<hour>` | hash | body digest + 16 s slot → records | claim TTL + 1 h |
| `{p}:{bb}:plain-until` | sorted set | spaces with an end without sequences, or `*` for all → until when | claim TTL |
| `{p}:{bb}:open` | hash | token → state and place of its entry | none: each leaves with its end |
| `{p}:{bb}:books` | hash | outcome → count | none |
| `{p}:{bb}:dead` | hash | token → state and note (JSON) of what ended as dead | 30 days after the last one |

`{bb}` is the bucket, 00…63, as a hash tag: keys that one script touches share a slot, and the load spreads.
`<space>` is a group, `!group` for its notices, or for private chats `@account,user`. Parts are encoded so that no two
tuples give one key, and an empty part is refused.
"""

from __future__ import annotations

from hashlib import blake2b
from urllib.parse import quote, unquote

BUCKETS = 64
SEQUENCES_PER_BLOCK = 64
CONTENT_HOUR_S = 3600
ANY_SPACE = "*"
"""Stands for every space of a bucket; none is encoded like this."""

LEASES_TTL_MS = 86_400_000
PRESENCE_TTL_S = 86_400
FLEET_TTL_S = 90 * 86_400
TERMS_TTL_S = 86_400
DEAD_TTL_S = 30 * 86_400
WORKER_TTL_S = 60
READY_TTL_S = 60

NO_TTL = ("{p}:deployment", "{p}:{ctl}:epoch", "{p}:{bb}:books", "{p}:{bb}:open")
"""Patterns of the keys that live for ever; each is bounded in number by its name."""


def encode(part: str) -> str:
    """`part` with everything but letters, digits and `_.-~` percent-encoded. Raises ValueError if it is empty."""
    if not part:
        raise ValueError("a key part is empty: an event without an id must be refused before it reaches Redis")
    return part if part.isascii() and part.isalnum() else quote(part, safe="")


def private_space(account: str, user: str) -> str:
    """The key part of a private chat: it holds the account, so that accounts never match each other there."""
    return f"@{encode(account)},{encode(user)}"


def notice_space(group: str) -> str:
    """The key part of a group's notices, which are matched apart from its messages."""
    return f"!{encode(group)}"


def group_of(space: str) -> str:
    """The group of a space; empty for a private chat."""
    return "" if space.startswith("@") else unquote(space.removeprefix("!"))


def account_of(space: str) -> str:
    """The account of a private chat's space; empty for a group, whose accounts share it."""
    return unquote(space[1:].partition(",")[0]) if space.startswith("@") else ""


class Bucket:
    """The keys that one space's scripts use; all share the bucket's hash tag."""

    __slots__ = ("blocks", "books", "dead", "hours", "number", "open", "plain")

    def __init__(self, prefix: str, number: int, space: str) -> None:
        root = f"{prefix}:{{{number:02d}}}"
        self.number = number
        self.blocks = f"{root}:q:{space}:"
        self.hours = f"{root}:t:{space}:"
        self.plain = f"{root}:plain-until"
        self.open = f"{root}:open"
        self.books = f"{root}:books"
        self.dead = f"{root}:dead"

    def block(self, seq: int) -> str:
        """The hash that holds a 16-bit sequence."""
        return f"{self.blocks}{seq >> 6}"

    def hour(self, time_s: int) -> str:
        """The hash that holds what was said by content in that hour."""
        return f"{self.hours}{time_s // CONTENT_HOUR_S}"


class Keys:
    """Names every key of one deployment."""

    def __init__(self, prefix: str) -> None:
        self.prefix = ":".join(encode(part) for part in prefix.split(":"))
        self.deployment = f"{self.prefix}:deployment"
        self.epoch = f"{self.prefix}:{{ctl}}:epoch"
        self.leases = f"{self.prefix}:{{ctl}}:leases"
        self.presence = f"{self.prefix}:presence:bots"
        self.fleet = f"{self.prefix}:presence:fleet"
        self.terms = f"{self.prefix}:presence:terms"

    def worker(self, shard_id: int) -> str:
        """A worker's published counters."""
        return f"{self.prefix}:worker:{shard_id}"

    def ready(self, name: str) -> str:
        """What the readiness probe of process `name` writes."""
        return f"{self.prefix}:ready:{encode(name)}"

    def bucket(self, space: str) -> Bucket:
        """The keys of a space; `space` is `encode(group)` or `private_space(…)`."""
        return Bucket(self.prefix, bucket_of(space), space)

    def bucket_keys(self, number: int) -> Bucket:
        """The keys of a bucket that belong to no space (`open`, `books`, `dead`, `plain`)."""
        return Bucket(self.prefix, number, "-")


def bucket_of(space: str) -> int:
    """The bucket of a space: the same on every worker and in every version."""
    return blake2b(space.encode(), digest_size=2).digest()[1] % BUCKETS
