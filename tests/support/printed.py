"""What a command prints of a stand-in deployment, for tests of its lines."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from shard.terminal import show
from shard.view import ClusterView
from tests.web.cluster import Cluster, HandClock, bot, shard

NOW = 1_800_000_000.0


class Page(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def cluster() -> Cluster:
    """Eight accounts on two workers, all well."""
    made = Cluster()
    made.bot_rows = [bot(str(10_000 + number), at=NOW) for number in range(8)]
    made.shard_rows = [shard("0", at=NOW), shard("1", at=NOW)]
    return made


async def printed(
    what: str, view: ClusterView, folder: Path, *, locale: str = "en_US.UTF-8", terminal: bool = False, **options: Any
) -> tuple[str, int]:
    """The text and the exit code of `pallas <what>`."""
    page = Page(terminal=terminal)
    options = {"as_json": False, "pause_s": 0.0, **options}
    code = await show(what, view, folder, HandClock(NOW), locale=locale, stream=page, **options)
    return page.getvalue(), code
