"""The table of settings: every one with its range, what it does, and what more or less of it costs.

Constructing `Settings` reads nothing; what is not given has its default. Only `pallas.settings.load` reads the
surroundings. Secrets never appear in a text made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import PrivateAttr, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pallas.redact import passwords_in, redact_text
from pallas.settings_federate import FederateSettings
from pallas.settings_fields import SettingInfo, describe_model, setting
from pallas.settings_rules import ConflictError, conflicts
from pallas.settings_values import (
    REDIS_BEGINNINGS,
    Address,
    AppPath,
    DeploymentId,
    Host,
    HostNames,
    Ids,
    Prefix,
    Secret,
    UrlPath,
    Word,
)


class Settings(FederateSettings):
    """All settings of one process; frozen. Names are those of `PALLAS_*`, in lower case."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    config: Path | None = setting(
        None,
        "Settings file to read; set only in the environment, in `.env` or as an argument.",
        "A named file must exist; unset, ./pallas.toml is read if it is there.",
        allowed="a path",
    )
    redis_url: Address = setting(
        "embedded://",
        "Redis of this deployment.",
        "embedded:// serves one machine; memory:// forgets everything when the process ends.",
        allowed=f"an address that begins with one of {REDIS_BEGINNINGS}",
        secret=True,
    )
    redis_prefix: Prefix = setting(
        "pallas",
        "First part of every key in Redis.",
        "Another prefix is another deployment: what the old one remembered is not seen any more.",
    )
    data_dir: Path = setting(
        Path("pallas-data"),
        "Folder of the deployment's id, its secrets and the embedded Redis.",
        "A lost folder makes a new deployment; relative paths count from the working folder.",
        allowed="a path",
    )
    deployment_id: DeploymentId = setting(
        "",
        "Id of this deployment, the same on each of its machines.",
        "Unset, the data folder's own id is used: right for one machine, and refused on a second one.",
        allowed="8 to 64 letters, digits or dashes",
    )
    host: Host = setting(
        "127.0.0.1",
        "Address that hub and workers listen on.",
        "0.0.0.0 or :: lets other machines connect: set PALLAS_ONEBOT_TOKEN first.",
    )
    hub_port: int = setting(8088, "Port of the hub.", "Pages, links and probes point here.", ge=1, le=65535)
    worker_port: int = setting(
        8090,
        "Port of worker 0; worker K listens on this plus K.",
        "Protocol ends are configured with these ports: a change moves all of them.",
        ge=1,
        le=65280,
    )
    shard_id: int | None = setting(
        None,
        "Number of this worker; unset: the lowest free one is leased.",
        "A fixed number fixes the port; the same number twice is refused while the first worker lives.",
        ge=0,
        le=255,
    )
    app: AppPath = setting(
        "",
        "The bot, as module:name; empty: messages are recorded, and nobody answers.",
        "The module is imported by every worker.",
        allowed="module:name, for example my_bot:app",
    )
    onebot_token: Secret = setting(
        None,
        "Token that protocol ends must present.",
        "Unset, only protocol ends on this machine are let in.",
    )
    onebot_path: UrlPath = setting(
        "/onebot/v11/ws",
        "Path of the WebSocket for protocol ends.",
        "Protocol ends are configured with it: a change disconnects all of them.",
    )
    hub_token: Secret = setting(
        None,
        "Token for the hub's API and pages.",
        "Unset, the first start prints a one-time sign-in link.",
    )
    hub_hosts: HostNames = setting(
        (),
        "Names under which browsers may reach the hub, beside its IP addresses and localhost.",
        "A name that is missing is refused; a name that strangers control lets their pages speak to the hub.",
        allowed="host names separated by commas, without scheme",
    )
    superusers: Ids = setting((), "People with every right.", "Whoever is listed can run any command anywhere.")
    bot_moderators: Ids = setting((), "People who may run bot_moderator commands.", "They act in every group.")
    staff: Ids = setting((), "People who may run staff commands.", "They act in every group.")
    accounts: Ids = setting(
        (),
        "Own accounts that may be offline, beside the connected ones, which are known anyway.",
        "A person listed here by mistake is ignored as one of our own bots.",
    )
    stale_s: int = setting(
        600,
        "Older messages are counted, not answered.",
        "Higher answers people long after they asked, as after an outage; lower drops messages of a slow end.",
        ge=5,
        le=86400,
    )
    notice_stale_s: int = setting(
        120,
        "Older notices are counted, not handled.",
        "Higher greets people long after they joined; lower drops notices of a slow end.",
        ge=5,
        le=86400,
    )
    claim_ttl_s: int = setting(
        86400,
        "How long a handled message is remembered in Redis.",
        "Higher costs Redis memory for each message; lower lets a late copy be answered again.",
        ge=10,
        le=604800,
        floor=21600,
    )
    lease_s: float = setting(
        10.0,
        "Life of a worker's lease, renewed at a third of it.",
        "Higher leaves a dead worker's messages waiting longer; lower takes work from workers that only paused.",
        ge=0.5,
        le=120,
        floor=3,
    )
    standby_look_s: float = setting(
        1.0,
        "How long after losing a message a worker first looks whether its holder has begun or died.",
        "Higher answers a dead worker's messages later; lower asks Redis more often about messages in good hands.",
        ge=0.05,
        le=10,
    )
    standby_messages: int = setting(
        10_000,
        "How many messages that other workers hold one worker keeps for a take-over.",
        "Higher takes memory while other workers are slow; lower may lose what a dying worker had not begun.",
        ge=0,
        le=1_000_000,
    )
    orphan_after_s: float = setting(
        30.0,
        "How long after a worker's death its open messages are ended as dead by the others.",
        "Higher shows lost messages later; lower leaves standbys less time to take them.",
        ge=0.5,
        le=3600,
        floor=10,
    )
    claim_wait_ms: int = setting(
        300,
        "How long a message waits for its claim before it is pending and asked again.",
        "Higher keeps a message's handler waiting for a slow Redis; lower asks a slow Redis more often.",
        ge=10,
        le=5000,
    )
    redis_dead_after_ms: int = setting(
        3000,
        "A connection to Redis that has not answered for so long is dropped and made anew.",
        "Higher notices a dead connection later; lower takes a pause of Redis for one.",
        ge=100,
        le=60000,
    )
    handler_timeout_s: float = setting(
        60.0,
        "Longest run of a handler.",
        "Higher lets a stuck handler hold its place; lower cuts slow handlers off.",
        ge=0.1,
        le=3600,
    )
    action_timeout_s: float = setting(
        30.0,
        "How long a protocol end may take to answer a call.",
        "Higher holds the handler; lower leaves more sends with an unknown result, which are never repeated.",
        ge=0.1,
        le=600,
    )
    max_frame_bytes: int = setting(
        16 << 20,
        "Largest frame of a protocol end; larger ones close the link (1009).",
        "Higher costs memory for each link; lower cuts ends off that send pictures inside messages.",
        ge=65536,
        le=128 << 20,
    )
    max_segments: int = setting(
        1000,
        "Most parts of one message; messages with more are refused.",
        "Higher costs time for each hostile message; lower refuses honest long ones.",
        ge=1,
        le=10000,
    )
    max_json_depth: int = setting(
        64,
        "Deepest nesting of a frame; deeper ones are refused.",
        "Higher costs time for hostile frames; lower refuses nested forwards.",
        ge=8,
        le=512,
    )
    max_links: int = setting(
        2000,
        "Most connections of one worker; further ones are refused before the upgrade.",
        "Higher costs memory and file descriptors; lower locks accounts out.",
        ge=1,
        le=50000,
    )
    max_pending: int = setting(
        10000,
        "Most messages of one worker that wait for a claim or a handler; further ones are refused and counted.",
        "Higher costs memory in an outage; lower refuses messages in a burst.",
        ge=100,
        le=1000000,
    )
    match_entries: int = setting(
        100000,
        "Most recent messages that one worker keeps to recognise copies without asking Redis.",
        "Higher costs about 500 bytes each; too low answers twice where an end reports no sequences.",
        ge=100,
        le=5000000,
    )
    match_keep_s: float = setting(
        120.0,
        "How long a message is kept to recognise copies, in groups where all ends report sequences.",
        "Higher fills `match_entries`; lower asks Redis for late copies. Other groups: stale_s and a minute.",
        ge=1,
        le=3600,
    )
    presence_purge_s: float = setting(
        120.0,
        "An account that was not refreshed for so long is removed from the list of the connected.",
        "Higher shows dead accounts longer; lower hides living ones in a short disturbance.",
        ge=1,
        le=3600,
        floor=30,
    )
    presence_refresh_s: float = setting(
        5.0,
        "How often a worker refreshes its accounts in that list.",
        "Lower costs Redis commands; higher comes nearer to the removal.",
        ge=0.2,
        le=600,
    )
    ping_interval_s: float = setting(
        20.0,
        "How often a link is pinged; one unanswered interval closes it.",
        "Higher finds dead links later; lower closes links of busy ends and costs traffic.",
        ge=0.2,
        le=300,
    )
    drain_grace_s: float = setting(
        10.0,
        "How long a stopping process waits for the work in hand.",
        "Higher delays restarts; lower cuts handlers off earlier. Keep it below the supervisor's kill time.",
        ge=0,
        le=600,
    )
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Word] = setting(
        "info", "Least important log lines that are written.", "debug writes several lines for each message."
    )
    log_format: Annotated[Literal["json", "console", "auto"], Word] = setting(
        "auto", "Form of log lines; auto: console in a terminal, else JSON.", "Only JSON is meant for programs."
    )
    testing: bool = setting(
        default=False,
        what="Lets times be shorter than is safe, and faults be injected.",
        cost="Never on in a deployment that people use.",
    )
    test_fault: str = setting(
        "",
        "Fault to inject, for tests: ACTION:POINT[:VISIT[:MS]], such as kill:claimed:3.",
        "Breaks the process on purpose; refused unless PALLAS_TESTING is on.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _warnings: tuple[str, ...] = PrivateAttr(default=())

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Nothing but what the caller gives: only `load` reads the surroundings."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: object, info: Any) -> object:
        kind = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and kind in {int, float, int | None}:
            raise ValueError(f"must be {INFO[info.field_name].allowed}")
        return value

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Settings:
        found = conflicts(self)
        if found:
            raise ConflictError(found)
        return self

    def loaded(
        self, *, data_dir: Path, config: Path | None, origins: Mapping[str, str], warnings: tuple[str, ...]
    ) -> Settings:
        """The same, with what only the loader knows: absolute paths, origins and warnings."""
        settings = self.model_copy(update={"data_dir": data_dir, "config": config})
        settings._origins = dict(origins)  # noqa: SLF001 - a copy of itself
        settings._warnings = warnings  # noqa: SLF001
        return settings

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was loaded but probably not meant, one sentence each; for the log at start."""
        return self._warnings

    def origin(self, key: str) -> str:
        """Where a setting's value came from: `the environment`, a file, `the default` …"""
        return self._origins.get(key, "the default")

    def secret_values(self) -> tuple[str, ...]:
        """The secrets themselves (tokens, passwords of addresses), for the one purpose of removing them from texts."""
        values = (getattr(self, key) for key in type(self).model_fields)
        tokens = tuple(value.get_secret_value() for value in values if isinstance(value, SecretStr))
        return tokens + passwords_in(self.redis_url) + passwords_in(self.federate_coord_redis_url)

    def dump(self) -> dict[str, object]:
        """Every setting in a form that may be shown and serialised: secrets only as set or unset."""
        return {key: shown(getattr(self, key)) for key in type(self).model_fields}

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return list(self.dump().items())


INFO: Mapping[str, SettingInfo] = {info.key: info for info in describe_model(Settings)}
"""What is to be known about each setting, by its key."""


def shown(value: object) -> object:
    """A setting's value in a form that may be shown and serialised."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Path):
        return str(value)
    return redact_text(value) if isinstance(value, str) else value
