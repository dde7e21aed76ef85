"""Writes docs/settings.md from the settings' own declarations: python scripts/settings_page.py > docs/settings.md."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from pallas.settings import FederateSettings, SettingInfo, describe

_HEAD = """\
# Settings

Made by `python scripts/settings_page.py > docs/settings.md` from what the code declares; a test compares the two.

A setting is looked for in this order, and the first place that has it wins:

1. an option of the command (`--data`, `--app`, `--hub-port`, `--worker-port`, `--shard-id`),
2. the environment,
3. the file `.env` in the folder you start from,
4. the file `pallas.toml` there, or the one that `PALLAS_CONFIG` names,
5. the default.

In `pallas.toml` the names are in lower case and without `PALLAS_`, and any underscore may be the border of a table:
`hub_port = 8088` is the same as `port = 8088` under `[hub]`. An empty variable counts as not set. A name that is no
setting, a value out of its range and two settings that contradict each other are refused at the start, all at once,
each with where it was found and what would be right. `pallas doctor` checks without starting anything.

A change takes effect when the process is started again.
"""
_POOL = """\
## The pool

These are read and checked, so that a configuration can be prepared; this version does not join pools, and a worker says
so in its log.
"""


def page() -> str:
    """The page as it must stand in docs/settings.md."""
    pool = FederateSettings.model_fields
    ours = [info for info in describe() if info.key not in pool]
    theirs = [info for info in describe() if info.key in pool]
    return "\n".join([_HEAD, "## This deployment\n", *_table(ours), "", _POOL, *_table(theirs), ""])


def _table(settings: Iterable[SettingInfo]) -> Iterable[str]:
    yield "| Setting | Default | Allowed | What it does, and what it costs |"
    yield "|---|---|---|---|"
    for info in settings:
        default = f"`{info.default}`" if info.default else ""
        secret = " A secret: never shown or logged." if info.secret else ""
        yield f"| `{info.env}` | {default} | {_cell(info.allowed)} | {_cell(info.what)} {_cell(info.cost)}{secret} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
