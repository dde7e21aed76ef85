"""Every error this project raises on purpose.

    PallasError
    ├── SettingsError        a setting is unknown, malformed or contradictory
    ├── BadFrame             a frame from a protocol end cannot be used (carries a reason code)
    ├── RedisError
    │   ├── RedisUnavailable no connection could be made, nothing was sent
    │   │   └── RedisRefused the server refuses our user name or password: waiting does not help
    │   ├── ReplyUnknown     the command may or may not have run: never "not done"
    │   └── ReplyError       the server answered with an error (carries its code)
    ├── EmbeddedServerError  the embedded server cannot start or its folder is in use
    ├── ShardTaken           the shard id is leased by another worker
    ├── LeaseLost            this worker's epoch may have lapsed: it must not send or complete
    ├── ForeignDeployment    the Redis prefix belongs to another deployment
    ├── AppError             the bot application cannot be loaded or declares a contradiction
    ├── SimulationFailed     the simulated accounts cannot connect to the workers
    └── ActionFailed         a call to a protocol end did not succeed
        ├── NotSent          surely not delivered
        └── SendUnknown      the end may have acted: never repeated by itself

A message says what happened, which id it concerns and what to do; only `pallas.cli` and the
HTTP handlers print it.
"""

from __future__ import annotations


class PallasError(Exception):
    """Base of every error raised on purpose."""


class SettingsError(PallasError):
    """A setting is unknown, malformed or contradicts another one."""


class BadFrame(PallasError):
    """A frame cannot be used; `reason` is one of `pallas.model.Reason`'s refusal codes."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class RedisError(PallasError):
    """Base of what can go wrong between this process and Redis."""


class RedisUnavailable(RedisError):
    """No connection could be made: the command was surely not sent."""


class RedisRefused(RedisUnavailable):
    """The server is there and refuses our user name or password; only a change of settings helps."""


class ReplyUnknown(RedisError):
    """The reply is late or the connection broke: the command may or may not have run."""


class ReplyError(RedisError):
    """The server answered with an error; `code` is its first word (`OOM`, `READONLY`, `WRONGTYPE` …)."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = message.split(" ", 1)[0]


class EmbeddedServerError(PallasError):
    """The embedded Valkey cannot start, or another process owns its folder."""


class ShardTaken(PallasError):
    """The shard id is leased; `waiting` says, for whoever waits for it, what is waited for."""

    def __init__(self, message: str, waiting: str = "") -> None:
        super().__init__(message)
        self.waiting = waiting or message


class LeaseLost(PallasError):
    """This worker's epoch may have lapsed; it must neither send nor complete anything under it."""


class ForeignDeployment(PallasError):
    """The Redis prefix is marked with another deployment's id."""


class AppError(PallasError):
    """The bot application cannot be loaded, or two of its handlers contradict each other."""


class SimulationFailed(PallasError):
    """The simulated accounts cannot connect to the workers; says which address and what to start."""


class ActionFailed(PallasError):
    """A call to a protocol end did not succeed; `retcode` is the end's code, or -1/-2/-3 of ours.

    `words` is the end's own explanation, for the bot to look at. It may repeat what was to be sent, so it is no part
    of the error's text and must not be logged.
    """

    def __init__(self, message: str, retcode: int, *, words: str = "") -> None:
        super().__init__(message)
        self.retcode = retcode
        self.words = words


class NotSent(ActionFailed):
    """The call surely had no effect: no link, or the frame was never written."""


class SendUnknown(ActionFailed):
    """The frame was written and no answer came: the effect may have happened."""
