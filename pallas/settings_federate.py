"""The settings of the pool, with the names, defaults and parse rules that Pallas-Bot deployments already use.

Two deployments of a pool that read the same text differently would each think the other one answers, so odd texts
mean here what they mean there: a value which Pallas-Bot replaces by its default is replaced by the same default, and
said so, instead of being refused. `federate` reads these through `FederateSettings` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import field_validator
from pydantic_settings import BaseSettings

from pallas.settings_fields import setting
from pallas.settings_values import OptionalAddress, Secret

Parsed = tuple[Any, str]
"""The value and, where the text was not taken as it stands, what was done instead."""

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


def tristate(text: str | None, *, default: bool | None) -> bool | None:
    """Yes, no or `default` for everything else (also `auto`)."""
    word = (text or "").strip().lower()
    if word in _YES:
        return True
    return False if word in _NO else default


def pool_prefix(prefix: str, federate_id: str) -> str:
    """Prefix of the pool's keys: the given one, else made from the id; empty where there is neither."""
    given = prefix.strip().rstrip(":")
    if given:
        return given
    pool = federate_id.strip()
    return "pallas:fed:" + "".join(c if c.isalnum() or c in "-_" else "_" for c in pool) if pool else ""


def _switch(*, default: bool | None) -> Callable[[str], Parsed]:
    def parse(text: str) -> Parsed:
        known = tristate(text, default=None) is not None or text.strip().lower() in {"", "auto"}
        return tristate(
            text, default=default
        ), "" if known else f"is neither true nor false; {'auto' if default is None else str(default).lower()} is used"

    return parse


def _claim_ttl(text: str) -> Parsed:
    stripped = text.strip()
    try:
        value = int(stripped) if stripped.isdigit() else None
    except ValueError:  # `²` is a digit that int() does not take
        value = None
    if value is None:
        return 86400, "is not a whole number of seconds; 86400 is used"
    return (value, "") if value >= 60 else (60, "is below the smallest value; 60 is used")


def _rotate(text: str) -> Parsed:
    try:
        value = int(text.strip())
    except ValueError:
        return 7200, "is not a whole number of seconds; 7200 is used"
    return (value, "") if value >= 0 else (0, "is negative; 0 (owners never rotate) is used")


_LENIENT: Mapping[str, Callable[[str], Parsed]] = {
    "federate_ingress_enabled": _switch(default=None),
    "control_plane_enabled": _switch(default=True),
    "federate_ingress_bypass_unified": _switch(default=False),
    "federate_prefer_local_owner": _switch(default=False),
    "federate_claim_ttl_sec": _claim_ttl,
    "federate_owner_rotate_sec": _rotate,
}
_RAISED: Mapping[str, float] = {
    "federate_peer_bot_ttl_sec": 60,
    "federate_peer_bot_refresh_sec": 15,
    "federate_present_group_publish_cap": 64,
    "federate_present_group_remote_push_interval_sec": 5,
    "federate_nickname_cache_sec": 60,
    "federate_nickname_cache_max_size": 1,
    "federate_candidate_ttl_sec": 1,
}


def replaced(values: Mapping[str, object]) -> list[tuple[str, str]]:
    """The settings among `values` (as given) that were not taken as they stand: key and what was done instead."""
    notes = []
    for key, value in values.items():
        note = ""
        if key in _LENIENT:
            note = _LENIENT[key](_text(value))[1]
        elif key in _RAISED:
            note = f"is below the smallest value; {_RAISED[key]} is used" if _below(value, _RAISED[key]) else ""
        if note:
            notes.append((key, note))
    return notes


def _below(value: object, least: float) -> bool:
    try:
        return float(str(value)) < least
    except ValueError:
        return False


def _text(value: object) -> str:
    return "" if value is None else str(value)


class FederateSettings(BaseSettings):
    """What `federate` reads: the pool, its Redis, and how peers are believed."""

    federate_id: str = setting(
        "",
        "Name of the pool; deployments with the same name and the same pool Redis share their messages.",
        "Empty means no pool; a name shared by mistake makes strangers answer for each other.",
    )
    federate_coord_redis_url: OptionalAddress = setting(
        "",
        "Address of the pool's Redis.",
        "Without it the pool is off, whatever the other settings say.",
        allowed="a Redis address such as rediss://user:password@host:6379/0",
        secret=True,
    )
    federate_secret: Secret = setting(
        None,
        "Secret shared by the pool's members, which signs what this deployment says.",
        "Without it anybody who can write to the pool's Redis can speak for this deployment.",
    )
    federate_legacy: Literal["refuse", "allow"] = setting(
        "refuse",
        "Whether unsigned deployments (Pallas-Bot v4) are believed.",
        "`allow` lets them take part, and lets anybody with the pool's password pose as one.",
    )
    federate_ingress_enabled: bool | None = setting(
        None,
        "Whether messages are shared with the pool; auto: where a pool is named.",
        "Off, this deployment answers what its peers answer too.",
        allowed="true, false or auto",
    )
    control_plane_enabled: bool = setting(
        default=True,
        what="Off, the pool is off unless PALLAS_FEDERATE_INGRESS_ENABLED is true.",
        cost="Kept for configurations of Pallas-Bot; off costs the same as leaving the pool.",
    )
    federate_ingress_bypass_unified: bool = setting(
        default=False,
        what="Skip the pool's claim in `pallas unified`.",
        cost="On saves one round trip per message and lets a peer answer the same message.",
    )
    federate_redis_prefix: str = setting(
        "",
        "Prefix of the pool's keys; empty: made from PALLAS_FEDERATE_ID.",
        "Members with different prefixes do not see each other.",
    )
    federate_deployment_name: str = setting(
        "",
        "Name under which peers show this deployment.",
        "Empty shows its id; the name is public inside the pool.",
    )
    federate_claim_ttl_sec: int = setting(
        86400,
        "How long the pool remembers who took a message.",
        "Higher costs memory of the pool's Redis; lower lets a late copy be answered again.",
        ge=60,
    )
    federate_owner_rotate_sec: int = setting(
        7200,
        "After how long the owner of a group's commands changes; 0: never.",
        "Lower spreads the work sooner and makes more moments in which peers disagree.",
        ge=0,
    )
    federate_prefer_local_owner: bool = setting(
        default=False,
        what="Whether this deployment takes every command that it can answer.",
        cost="On in more than one member, each takes the command and only the claim keeps them apart.",
    )
    federate_peer_bot_ttl_sec: int = setting(
        180,
        "How long a peer is believed after its last heartbeat.",
        "Higher keeps dead peers as owners longer; lower drops peers after a short disturbance.",
        ge=60,
    )
    federate_peer_bot_refresh_sec: float = setting(
        60.0,
        "How often the heartbeat is sent and the peers are read.",
        "Lower costs commands on the pool's Redis; higher sees changes later.",
        ge=15,
    )
    federate_present_group_window_sec: int = setting(
        300,
        "How long a group counts as seen after its last message (at least the heartbeat's life).",
        "Higher keeps this deployment in the ring of groups that it has left.",
        ge=0,
    )
    federate_present_group_publish_cap: int = setting(
        2000,
        "Most groups a heartbeat lists.",
        "Higher makes heartbeats larger; lower hides groups, and peers then answer alone there.",
        ge=64,
    )
    federate_present_group_remote_push_interval_sec: float = setting(
        30.0,
        "How often one group is marked as seen in the pool's Redis.",
        "Lower costs commands on the pool's Redis.",
        ge=5,
    )
    federate_nickname_cache_sec: float = setting(
        600.0,
        "How long a nickname shown to peers is kept.",
        "Lower asks the protocol ends more often.",
        ge=60,
    )
    federate_nickname_cache_max_size: int = setting(
        1024,
        "Most nicknames kept.",
        "Higher costs memory.",
        ge=1,
    )
    federate_win_cache_sec: float = setting(
        8.0,
        "How long a won claim is remembered here.",
        "Lower asks the pool's Redis again for the same message.",
        ge=0,
    )
    federate_redis_claim_timeout_sec: float = setting(
        3.0,
        "How long a claim waits for the pool's Redis.",
        "Higher delays answers while the pool is slow; lower gives messages to nobody more often.",
        ge=0.1,
        le=60,
    )
    federate_candidate_ttl_sec: int = setting(
        2,
        "How long a candidate for a command is announced to Pallas-Bot peers.",
        "Lower lets a slow peer overlook this deployment.",
        ge=1,
    )

    @field_validator(*_LENIENT, mode="before")
    @classmethod
    def _as_pallas_bot_reads_it(cls, value: object, info: Any) -> object:
        return _LENIENT[info.field_name](str(value))[0] if isinstance(value, str | int | float) else value

    @field_validator(*_RAISED, mode="before")
    @classmethod
    def _raise_to_least(cls, value: object, info: Any) -> object:
        least = _RAISED[info.field_name]
        return least if not isinstance(value, bool) and _below(value, least) else value

    @property
    def pool_prefix(self) -> str:
        """Prefix of the pool's keys, empty where no pool is named."""
        return pool_prefix(self.federate_redis_prefix, self.federate_id)

    @property
    def pool_ingress(self) -> bool:
        """Whether the settings ask for messages to be shared (the pool's Redis apart)."""
        if self.control_plane_enabled and self.federate_ingress_enabled is None:
            return bool(self.federate_id.strip())
        return self.federate_ingress_enabled is True

    @property
    def present_window_s(self) -> int:
        """How long a group counts as seen: never shorter than a heartbeat's life."""
        return max(self.federate_present_group_window_sec, self.federate_peer_bot_ttl_sec)
