"""The pool's settings mean what the same text means to the Pallas-Bot deployments of the pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pallas.settings import load
from pallas.settings_federate import tristate

CASES = json.loads((Path(__file__).parent.parent / "data" / "config_parse.json").read_text("utf-8"))["cases"]


def answer(case: dict[str, Any], cwd: Path) -> object:
    asked = case["input"]
    if asked["what"] == "tristate":
        return tristate(asked["value"], default=asked["default"])
    settings = load(environ=asked["env"], cwd=cwd)
    return {
        "owner_rotate_sec": settings.federate_owner_rotate_sec,
        "prefer_local_owner": settings.federate_prefer_local_owner,
        "federate_claim_ttl": settings.federate_claim_ttl_sec,
        "federate_prefix": settings.pool_prefix,
        "federate_ingress_enabled": settings.pool_ingress,
        "bypass_unified": settings.federate_ingress_bypass_unified,
        "federate_url": settings.federate_coord_redis_url or None,
    }[asked["what"]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_known_text_gets_the_known_answer(case: dict[str, Any], tmp_path: Path) -> None:
    assert answer(case, tmp_path) == case["output"]


@pytest.mark.parametrize(
    "name, text, key, value",
    [
        ("PALLAS_FEDERATE_OWNER_ROTATE_SEC", "abc", "federate_owner_rotate_sec", 7200),
        ("PALLAS_FEDERATE_OWNER_ROTATE_SEC", "-1", "federate_owner_rotate_sec", 0),
        ("PALLAS_FEDERATE_CLAIM_TTL_SEC", "²", "federate_claim_ttl_sec", 86400),
        ("PALLAS_FEDERATE_CLAIM_TTL_SEC", "5", "federate_claim_ttl_sec", 60),
        ("PALLAS_FEDERATE_PREFER_LOCAL_OWNER", "sure", "federate_prefer_local_owner", False),
        ("PALLAS_FEDERATE_INGRESS_ENABLED", "x", "federate_ingress_enabled", None),
        ("PALLAS_CONTROL_PLANE_ENABLED", "x", "control_plane_enabled", True),
        ("PALLAS_FEDERATE_PEER_BOT_TTL_SEC", "10", "federate_peer_bot_ttl_sec", 60),
        ("PALLAS_FEDERATE_PRESENT_GROUP_PUBLISH_CAP", "1", "federate_present_group_publish_cap", 64),
    ],
)
def test_a_value_that_is_not_taken_as_it_stands_is_mentioned(
    tmp_path: Path, name: str, text: str, key: str, value: object
) -> None:
    settings = load(environ={name: text}, cwd=tmp_path)
    assert getattr(settings, key) == value
    (warning,) = settings.warnings
    assert warning.startswith(name)
    assert "the environment" in warning


def test_toml_booleans_and_numbers_are_taken_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "pallas.toml").write_text(
        "[control_plane]\nenabled = false\n"
        "[federate]\nid = 'pool'\ningress_enabled = true\nowner_rotate_sec = 60\nclaim_ttl_sec = 90\n"
    )
    settings = load(environ={}, cwd=tmp_path)
    assert (settings.control_plane_enabled, settings.federate_ingress_enabled) == (False, True)
    assert (settings.federate_owner_rotate_sec, settings.federate_claim_ttl_sec) == (60, 90)
    assert settings.pool_ingress
    assert settings.warnings == ()


def test_the_window_of_seen_groups_is_never_shorter_than_a_heartbeats_life(tmp_path: Path) -> None:
    environ = {"PALLAS_FEDERATE_PEER_BOT_TTL_SEC": "400"}
    assert load(environ=environ, cwd=tmp_path).present_window_s == 400


def test_a_given_prefix_is_used_without_its_last_colons(tmp_path: Path) -> None:
    environ = {"PALLAS_FEDERATE_REDIS_PREFIX": " my:pool:: ", "PALLAS_FEDERATE_ID": "x"}
    assert load(environ=environ, cwd=tmp_path).pool_prefix == "my:pool"


def test_a_pool_id_cannot_reach_keys_of_another_pool(tmp_path: Path) -> None:
    assert load(environ={"PALLAS_FEDERATE_ID": "a:b*{c} d"}, cwd=tmp_path).pool_prefix == "pallas:fed:a_b__c__d"
