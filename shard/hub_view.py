"""The deployment as its hub shows it: for commands that cannot reach its Redis themselves.

`memory://` lives inside one process, and a server named only in that process's environment is known only there. Asks
nothing but the hub's own API, and shows the hub that the command may read its data folder.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, TypeVar

from pallas.errors import PallasError, RedisUnavailable
from pallas.untrusted import visible
from shard.endpoints import Endpoint
from shard.facts import books_from, bots_from, dead_from, shards_from
from shard.local_http import Answer, get
from shard.view import Books, BotRow, DeadRow, Readiness, ShardRow

T = TypeVar("T")

_OK = 200
_REFUSED = frozenset({401, 403})
_TOO_MANY = 429
_NOT_NOW = 503
_LONGEST_TEXT = 300


class HubView:
    """A `ClusterView` on a running hub; `bearer` makes what is sent as `Authorization: Bearer`, anew for each request.

    Raises PallasError besides what a `ClusterView` raises, where the hub does not answer or is of another version.
    """

    def __init__(self, hub: Endpoint, bearer: Callable[[], str]) -> None:
        self._hub = hub
        self._bearer = bearer

    async def bots(self) -> list[BotRow]:
        return await self._read("bots", bots_from)

    async def shards(self) -> list[ShardRow]:
        return await self._read("shards", shards_from)

    async def books(self) -> Books:
        return await self._read("books", books_from)

    async def dead(self) -> list[DeadRow]:
        return await self._read("dead", dead_from)

    async def ready(self) -> Readiness:
        answer = await self._ask("/readyz", {})
        found = self._json(answer.body)
        return Readiness(answer.status == _OK, str(found.get("reason", "")), found.get("round_trip_ms"))

    async def _read(self, name: str, parse: Callable[[Any], T]) -> T:
        answer = await self._ask(f"/api/v1/{name}", {"Authorization": f"Bearer {self._bearer()}"})
        found = self._json(answer.body)
        if answer.status != _OK:
            raise self._refusal(answer.status, found)
        try:
            return parse(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._stranger() from error

    async def _ask(self, path: str, headers: dict[str, str]) -> Answer:
        try:
            return await asyncio.to_thread(get, self._hub.health + path, headers=headers, timeout_s=5.0)
        except OSError as error:
            raise PallasError(
                f"the hub (process {self._hub.pid}) does not answer at {self._hub.url}: "
                f"{visible(str(error), _LONGEST_TEXT)}; look into its log, or start it again"
            ) from error

    def _json(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError as error:
            raise self._stranger() from error
        if not isinstance(found, dict):
            raise self._stranger()
        return found

    def _refusal(self, status: int, found: dict[str, Any]) -> PallasError:
        problem = found.get("error")
        said = visible(str(problem.get("message", "")) if isinstance(problem, dict) else "", _LONGEST_TEXT)
        if status == _NOT_NOW:
            return RedisUnavailable(f"the hub at {self._hub.url} says: {said}")
        if status in _REFUSED:
            return PallasError(
                f"the hub at {self._hub.url} does not know this data folder (HTTP {status}): it was started with "
                "another one, or the folder's secrets were replaced since; name its folder with --data, or restart it"
            )
        if status == _TOO_MANY:
            return PallasError(f"the hub at {self._hub.url} refuses this address for a while: {said}; try again later")
        return PallasError(f"the hub at {self._hub.url} answered HTTP {status}: {said}; look into its log")

    def _stranger(self) -> PallasError:
        return PallasError(
            f"what answers at {self._hub.url} is no hub of this version; restart the hub after an update, and see that "
            "nothing else took its port"
        )
