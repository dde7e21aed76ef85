"""Settings that are each in range and still cannot be used together, or not outside of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pallas.errors import SettingsError
from pallas.faults import faults_of
from pallas.settings_fields import describe_model, env_name

if TYPE_CHECKING:
    from pallas.settings_table import Settings


@dataclass(frozen=True, slots=True)
class Conflict:
    """One rule that is broken; `text` continues the name of the first of `keys`."""

    keys: tuple[str, ...]
    text: str


class ConflictError(ValueError):
    """What pydantic carries out of the validation."""

    def __init__(self, found: list[Conflict]) -> None:
        super().__init__("; ".join(f"{env_name(each.keys[0])} {each.text}" for each in found))
        self.found = found


def conflicts(settings: Settings) -> list[Conflict]:
    """Every broken rule, each with the settings it concerns."""
    found = _between(settings)
    if not settings.testing:
        found += _below_floor(settings)
    try:
        faults_of(settings.test_fault, testing=settings.testing)
    except SettingsError as error:
        found.append(Conflict(("test_fault", "testing"), str(error)))
    return found


def _between(s: Settings) -> list[Conflict]:
    found = []

    def rule(holds: bool, text: str, *keys: str) -> None:
        if not holds:
            found.append(Conflict(keys, text))

    for key in ("stale_s", "notice_stale_s"):
        age = getattr(s, key)
        rule(
            s.claim_ttl_s > 2 * age,
            f"({s.claim_ttl_s}) must be more than twice {env_name(key)} ({age}), or a message that may still be "
            "answered is already forgotten",
            "claim_ttl_s",
            key,
        )
    rule(
        s.claim_wait_ms < s.lease_s * 1000 / 3,
        f"({s.claim_wait_ms}) must be less than a third of PALLAS_LEASE_S ({s.lease_s} s), or one slow claim uses up "
        "the time in which the lease is renewed",
        "claim_wait_ms",
        "lease_s",
    )
    rule(
        s.redis_dead_after_ms > s.claim_wait_ms,
        f"({s.redis_dead_after_ms}) must be more than PALLAS_CLAIM_WAIT_MS ({s.claim_wait_ms}), or one late answer "
        "counts as an outage",
        "redis_dead_after_ms",
        "claim_wait_ms",
    )
    rule(
        s.redis_dead_after_ms < s.lease_s * 1000,
        f"({s.redis_dead_after_ms}) must be less than PALLAS_LEASE_S ({s.lease_s} s), or leases lapse before the "
        "outage is noticed",
        "redis_dead_after_ms",
        "lease_s",
    )
    rule(
        s.presence_refresh_s * 2 <= s.presence_purge_s,
        f"({s.presence_refresh_s}) must be at most half of PALLAS_PRESENCE_PURGE_S ({s.presence_purge_s}), or one "
        "missed refresh removes living accounts",
        "presence_refresh_s",
        "presence_purge_s",
    )
    rule(
        s.hub_port != s.worker_port + (s.shard_id or 0),
        f"({s.hub_port}) is the port of worker {s.shard_id or 0} (PALLAS_WORKER_PORT plus its number); change one of "
        "them",
        "hub_port",
        "worker_port",
        "shard_id",
    )
    return found


def _below_floor(settings: Settings) -> list[Conflict]:
    return [
        Conflict((info.key,), f"must be {info.allowed} (less is for tests, with PALLAS_TESTING=1)")
        for info in describe_model(type(settings))
        if info.floor is not None and getattr(settings, info.key) < info.floor
    ]
