"""A configuration of Pallas-Bot is met with directions, not with silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from pallas.errors import SettingsError
from pallas.settings import load


@pytest.mark.parametrize(
    "name, instead",
    [
        ("PALLAS_SHARD_HUB_PORT", "PALLAS_HUB_PORT"),
        ("PALLAS_SHARD_WORKER_BASE_PORT", "PALLAS_WORKER_PORT"),
        ("PALLAS_SHARD_WS_PATH", "PALLAS_ONEBOT_PATH"),
        ("PALLAS_SHARD_WS_HOST", "PALLAS_HOST"),
        ("PALLAS_COORD_REDIS_URL", "PALLAS_REDIS_URL"),
        ("PALLAS_COORD_REDIS_CLAIM_TTL_SEC", "PALLAS_CLAIM_TTL_S"),
        ("PALLAS_BOT_ROLE", "pallas worker"),
        ("PALLAS_INGRESS_FANOUT_GREETING", "@app.fanout"),
        ("PALLAS_CONTROL_PLANE_BOOTSTRAP_URL", "PALLAS_FEDERATE_ID"),
    ],
)
def test_an_old_name_is_refused_with_what_replaces_it(tmp_path: Path, name: str, instead: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ={name: "1"}, cwd=tmp_path)
    assert f"{name} is a setting of Pallas-Bot" in str(caught.value)
    assert instead in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "PALLAS_SHARD_ENABLED",
        "PALLAS_SHARD_BOTS_PER",
        "PALLAS_SHARD_AUTO_SCALE_WORKERS",
        "PALLAS_SHARD_TEST_ID",
        "PALLAS_SHARD_TEST_PORT",
        "PALLAS_COORD_REDIS_ENABLED",
        "PALLAS_GATE_READ_CACHE_MS",
        "PALLAS_AI_TASK_TTL_SEC",
        "PALLAS_INSTANCE_SECRET",
    ],
)
def test_an_old_name_that_does_no_harm_is_only_mentioned(tmp_path: Path, name: str) -> None:
    settings = load(environ={name: "canary-value"}, cwd=tmp_path)
    (warning,) = settings.warnings
    assert warning.startswith(f"{name} is a setting of Pallas-Bot and has no effect here")
    assert "the environment" in warning
    assert "canary-value" not in warning


def test_an_old_name_in_toml_is_recognised_too(tmp_path: Path) -> None:
    (tmp_path / "pallas.toml").write_text("[shard]\nhub_port = 1\n")
    with pytest.raises(SettingsError, match=r"shard\.hub_port is a setting of Pallas-Bot; here it is PALLAS_HUB_PORT"):
        load(environ={}, cwd=tmp_path)


def test_a_plain_redis_url_is_mentioned_where_a_person_wrote_it_for_us(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("REDIS_URL=redis://x\n")
    settings = load(environ={}, cwd=tmp_path)
    assert "only PALLAS_REDIS_URL" in settings.warnings[0]
    assert settings.redis_url == "embedded://"
    (tmp_path / ".env").unlink()
    assert load(environ={"REDIS_URL": "redis://x"}, cwd=tmp_path).warnings == ()


def test_names_that_both_projects_share_are_settings(tmp_path: Path) -> None:
    settings = load(environ={"PALLAS_SHARD_ID": "3", "PALLAS_FEDERATE_ID": "pool"}, cwd=tmp_path)
    assert (settings.shard_id, settings.federate_id) == (3, "pool")
    assert settings.warnings == ()
