"""Settings that are each in range and cannot be used together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pallas.errors import SettingsError
from pallas.settings import Settings, load


@pytest.mark.parametrize(
    "values, told",
    [
        ({"claim_ttl_s": 30000, "stale_s": 15000}, "PALLAS_CLAIM_TTL_S (30000) must be more than twice PALLAS_STALE_S"),
        ({"claim_ttl_s": 30000, "notice_stale_s": 15000}, "twice PALLAS_NOTICE_STALE_S"),
        ({"claim_ttl_s": 21599}, "from 21600"),
        ({"lease_s": 3, "claim_wait_ms": 1000, "redis_dead_after_ms": 2000}, "less than a third of PALLAS_LEASE_S"),
        ({"claim_wait_ms": 3000}, "PALLAS_REDIS_DEAD_AFTER_MS (3000) must be more than PALLAS_CLAIM_WAIT_MS"),
        ({"redis_dead_after_ms": 10000}, "must be less than PALLAS_LEASE_S"),
        ({"presence_refresh_s": 61}, "must be at most half of PALLAS_PRESENCE_PURGE_S"),
        ({"hub_port": 8090}, "is the port of worker 0"),
        ({"hub_port": 8093, "shard_id": 3}, "is the port of worker 3"),
        ({"test_fault": "claim.after"}, "PALLAS_TEST_FAULT is refused unless PALLAS_TESTING=1"),
    ],
)
def test_a_contradiction_is_refused_with_its_reason(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ={}, cwd=tmp_path, **values)
    assert told in str(caught.value)
    assert "the command line" in str(caught.value)
    with pytest.raises(ValidationError):
        Settings(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"claim_ttl_s": 30000, "stale_s": 14999},
        {"claim_ttl_s": 21600},
        {"presence_refresh_s": 60},
        {"hub_port": 8093, "shard_id": 2},
    ],
)
def test_a_value_just_inside_a_rule_is_taken(tmp_path: Path, values: dict[str, Any]) -> None:
    load(environ={}, cwd=tmp_path, **values)


def test_tests_may_run_with_times_that_are_too_short_for_people(tmp_path: Path) -> None:
    short = {
        "claim_ttl_s": 60,
        "stale_s": 20,
        "notice_stale_s": 20,
        "lease_s": 1,
        "claim_wait_ms": 100,
        "redis_dead_after_ms": 500,
        "presence_purge_s": 2,
        "presence_refresh_s": 0.5,
        "test_fault": "kill:claimed:3",
    }
    assert load(environ={"PALLAS_TESTING": "1"}, cwd=tmp_path, **short).lease_s == 1
