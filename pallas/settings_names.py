"""Names that are not settings: typing errors, and settings of Pallas-Bot that mean something else here.

An unknown name is refused, because a setting that silently does nothing is found at the worst moment. A setting of
Pallas-Bot is refused with the name that replaces it, or only mentioned where leaving it in place does no harm.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from pallas.settings_fields import PREFIX, env_name

_CLOSE_ENOUGH = 0.65


@dataclass(frozen=True, slots=True)
class Retired:
    """A setting of Pallas-Bot that is not one of ours."""

    advice: str
    harmless: bool
    """Leaving it set changes nothing that its owner relies on: a warning will do."""


_MOVED = {
    "PALLAS_SHARD_HUB_PORT": "PALLAS_HUB_PORT",
    "PALLAS_SHARD_WORKER_BASE_PORT": "PALLAS_WORKER_PORT",
    "PALLAS_SHARD_WS_PATH": "PALLAS_ONEBOT_PATH",
    "PALLAS_SHARD_WS_HOST": "PALLAS_HOST",
    "PALLAS_COORD_REDIS_URL": "PALLAS_REDIS_URL",
    "PALLAS_COORD_REDIS_CLAIM_TTL_SEC": "PALLAS_CLAIM_TTL_S",
}
_REFUSED = {
    "PALLAS_BOT_ROLE": (
        "the role is the command: `pallas hub`, `pallas worker` or `pallas unified`, and `pallas up` starts them all; "
        "remove it"
    ),
    "PALLAS_INGRESS_FANOUT_GREETING": (
        "texts that every account answers are declared in the bot with `@app.fanout(…)`; remove it"
    ),
    "PALLAS_CONTROL_PLANE_BOOTSTRAP_URL": (
        "no page is asked for the pool; set PALLAS_FEDERATE_ID and PALLAS_FEDERATE_COORD_REDIS_URL, and remove it"
    ),
}
_HARMLESS = {
    "PALLAS_SHARD_ENABLED": "whether there are shards follows from the command (`pallas up --workers N`)",
    "PALLAS_SHARD_BOTS_PER": "an account belongs to the worker whose address its protocol end connects to",
    "PALLAS_SHARD_AUTO_SCALE_WORKERS": "the number of workers is `pallas up --workers N`",
    "PALLAS_SHARD_TEST_ID": "there is no test shard; use a second deployment with its own PALLAS_REDIS_PREFIX",
    "PALLAS_SHARD_TEST_PORT": "there is no test shard; use a second deployment with its own PALLAS_REDIS_PREFIX",
    "PALLAS_COORD_REDIS_ENABLED": "Redis is always used; PALLAS_REDIS_URL says which",
    "PALLAS_GATE_READ_CACHE_MS": "gates are read from Redis each time",
    "PALLAS_AI_TASK_TTL_SEC": "tasks live in the task queue until they end",
    "PALLAS_INSTANCE_SECRET": "nothing signs in to a control plane; PALLAS_FEDERATE_SECRET protects the pool",
    "REDIS_URL": "only PALLAS_REDIS_URL says which Redis is used",
}


def retired(name: str) -> Retired | None:
    """What to do about a setting of Pallas-Bot, `None` if `name` is not one of those."""
    name = name.upper()
    if name in _MOVED:
        return Retired(f"is a setting of Pallas-Bot; here it is {_MOVED[name]}", harmless=False)
    if name in _REFUSED:
        return Retired(f"is a setting of Pallas-Bot: {_REFUSED[name]}", harmless=False)
    if name in _HARMLESS:
        return Retired(f"is a setting of Pallas-Bot and has no effect here: {_HARMLESS[name]}", harmless=True)
    return None


def unknown(key: str, known: Iterable[str]) -> str:
    """What to say about a key that is no setting: the nearest ones, if any is near."""
    bare = key.lower().removeprefix(PREFIX.lower())
    near = difflib.get_close_matches(bare, sorted(known), n=2, cutoff=_CLOSE_ENOUGH)
    if not near:
        return "is not a setting: check its spelling or remove it"
    return "is not a setting; did you mean " + " or ".join(env_name(key) for key in near) + "?"
