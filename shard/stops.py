"""How a report's way ends, and what it waits for on it: every stop has a column of the books and a reason.

A stop without a column would be a message that left uncounted. Nothing here decides which one it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pallas.model import Outcome, Reason


class Column(Enum):
    """In which column of the books a stop is entered; what is released has not ended, somebody may still take it."""

    REFUSED = "refused"
    COPY = "copy"
    IGNORED = "ignored"
    ENDED = "ended"
    RELEASED = "released"


@dataclass(slots=True, frozen=True)
class Stop:
    """Why a report goes no further; `outcome` says how the message ended where it was this worker's."""

    column: Column
    reason: Reason
    outcome: Outcome = Outcome.HANDLED


class Wait(Enum):
    """What a report waits for; whoever brings it goes on."""

    FOR_REDIS = "redis"
    FOR_HANDLER = "handler"


Step = Callable[[Any], Stop | Wait | None]
"""One step of a way, given the report: it says where that ends, that it waits, or None to go on."""

OWN_MESSAGE = Stop(Column.REFUSED, Reason.OWN_MESSAGE)
FLEET_SENDER = Stop(Column.REFUSED, Reason.FLEET_SENDER)
STALE = Stop(Column.REFUSED, Reason.STALE)
DRAINING = Stop(Column.REFUSED, Reason.DRAINING)
OVERLOAD = Stop(Column.REFUSED, Reason.OVERLOAD)
REDIS_UNAVAILABLE = Stop(Column.REFUSED, Reason.REDIS_UNAVAILABLE)
REPLAY = Stop(Column.COPY, Reason.REPLAY)
SAME_WORKER = Stop(Column.COPY, Reason.SAME_WORKER)
OTHER_SHARD = Stop(Column.COPY, Reason.OTHER_SHARD)
NO_HANDLER = Stop(Column.IGNORED, Reason.NO_HANDLER)
HANDLED = Stop(Column.ENDED, Reason.OK)
NOT_PERMITTED = Stop(Column.ENDED, Reason.NOT_PERMITTED, Outcome.DROPPED)
HANDLER_ERROR = Stop(Column.ENDED, Reason.HANDLER_ERROR, Outcome.DROPPED)
HANDLER_TIMEOUT = Stop(Column.ENDED, Reason.HANDLER_TIMEOUT, Outcome.DROPPED)
SHUTDOWN = Stop(Column.ENDED, Reason.SHUTDOWN, Outcome.DROPPED)
GIVEN_UP = Stop(Column.RELEASED, Reason.LEASE_LOST)
NO_LINK = Stop(Column.RELEASED, Reason.NO_LINK)
HANDED_BACK = Stop(Column.RELEASED, Reason.SHUTDOWN)
TOO_LATE = Stop(Column.ENDED, Reason.STALE, Outcome.DROPPED)
LEASE_LOST = Stop(Column.ENDED, Reason.LEASE_LOST, Outcome.DROPPED)
SENT_UNKNOWN = Stop(Column.ENDED, Reason.SENT_UNKNOWN, Outcome.DEAD)
