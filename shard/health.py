"""The processes of a data folder on this machine, and what each says of itself at `/readyz`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from pallas.untrusted import visible
from shard.endpoints import Endpoint, running
from shard.local_http import get

_OK = 200


@dataclass(slots=True, frozen=True)
class Process:
    """A running process of ours."""

    endpoint: Endpoint
    answers: bool
    ready: bool
    reason: str
    """`ok`, the code of what is missing, or empty where it does not answer."""

    def as_dict(self) -> dict[str, object]:
        """Its facts as JSON."""
        endpoint = self.endpoint
        return {
            "name": visible(endpoint.name),
            "pid": endpoint.pid,
            "url": endpoint.url,
            "health": endpoint.health,
            "answers": self.answers,
            "ready": self.ready,
            "reason": self.reason or None,
        }


async def processes(data_dir: Path) -> list[Process]:
    """Every process of this folder that runs now, asked at the same time; hub first, then workers by number."""
    return list(await asyncio.gather(*(asyncio.to_thread(_asked, each) for each in running(data_dir))))


def _asked(endpoint: Endpoint) -> Process:
    try:
        answer = get(f"{endpoint.health}/readyz")
    except OSError:
        return Process(endpoint, answers=False, ready=False, reason="")
    return Process(endpoint, answers=True, ready=answer.status == _OK, reason=_reason(answer.body))


def _reason(body: bytes) -> str:
    """The hub answers JSON, a worker one word."""
    text = body[:1000].decode("utf-8", "replace").strip()
    try:
        found = json.loads(text)
    except ValueError:
        return visible(text)
    return visible(str(found.get("reason", ""))) if isinstance(found, dict) else visible(text)
