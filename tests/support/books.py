"""The product's books as they stand in Redis, read by this file's own hand and not through the product."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

import redis

BUCKETS = 64


@dataclass(slots=True, frozen=True)
class StoredBooks:
    """All buckets together."""

    distinct: int
    outcomes: dict[str, int]
    open: int
    dead: tuple[dict[str, Any], ...]
    """What is listed for people, with its state: `c` not begun, `e` begun."""
    workers: dict[str, dict[str, Any]]
    """What each worker last published of its own side."""

    @property
    def handled(self) -> int:
        return self.outcomes.get("handled", 0)

    @property
    def unknown(self) -> int:
        return self.outcomes.get("dead:sent_unknown", 0)

    @property
    def holder_lost(self) -> int:
        return self.outcomes.get("dead:holder_lost", 0)

    @property
    def difference(self) -> int:
        """Distinct messages that neither ended nor are open."""
        return self.distinct - sum(self.outcomes.values()) - self.open

    @property
    def workers_difference(self) -> int:
        """Reports that stand in no column, or in two, of the workers that published last."""
        return sum(abs(_difference(worker["books"])) for worker in self.workers.values())


def _difference(books: dict[str, Any]) -> int:
    columns = sum(books["refused"].values()) + sum(books["copies"].values()) + books["ignored"] + books["distinct"]
    return int(books["arrived"] - columns - books["pending"])


def stored_books(url: str, prefix: str = "pallas") -> StoredBooks:
    """Read them now; nothing else may be writing for the sums to be exact."""
    with redis.Redis.from_url(url) as client:
        counts: dict[str, int] = {}
        pipe = client.pipeline(transaction=False)
        for number in range(BUCKETS):
            root = f"{prefix}:{{{number:02d}}}"
            pipe.hgetall(f"{root}:books")
            pipe.hlen(f"{root}:open")
            pipe.hgetall(f"{root}:dead")
        answers = cast("list[Any]", pipe.execute())
        for found in answers[0::3]:
            for name, count in found.items():
                counts[name.decode()] = counts.get(name.decode(), 0) + int(count)
        dead = tuple(
            {**json.loads(value[1:]), "state": value[:1].decode()}
            for found in answers[2::3]
            for value in found.values()
        )
        workers = {
            name.decode().rsplit(":", 1)[-1]: json.loads(cast("bytes", value))
            for name in client.scan_iter(f"{prefix}:worker:*", count=1000)
            if (value := client.get(name)) is not None
        }
    distinct = counts.pop("distinct", 0)
    return StoredBooks(distinct, counts, sum(answers[1::3]), dead, workers)


def dead_epochs(url: str, prefix: str = "pallas") -> list[str]:
    """Shards whose lease has lapsed by Redis's clock and still stands in the table."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        seconds, micros = cast("tuple[int, int]", client.time())
        now_ms = seconds * 1000 + micros // 1000
        rows = cast("dict[str, str]", client.hgetall(f"{prefix}:{{ctl}}:leases"))
        return [shard for shard, row in rows.items() if int(row.split("|")[1]) < now_ms]
