"""What a simulated run looks like: how many accounts, how much traffic, how unkind the network is.

Shares are fractions of one. `time_scale` shortens the protocol ends' own waits (reconnecting, heartbeats), so
that fault tests need not wait for real intervals; delays of the messages themselves are `spread_s`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from pallas.errors import SettingsError


class Conduct(StrEnum):
    """What an end makes of a send it is asked for."""

    OK = "ok"
    """It is accepted, and said so."""
    REFUSE = "refuse"
    """It is refused, and said so."""
    LATE = "late"
    """It is accepted, and said so only after `late_s`."""
    OK_THEN_CUT = "ok_then_cut"
    """It is accepted, and the link breaks before that is said."""
    CUT_BEFORE = "cut_before"
    """The link breaks before it is accepted."""
    NEVER = "never"
    """It is not accepted, and nothing is said."""


@dataclass(slots=True, frozen=True, kw_only=True)
class Options:
    """Raises SettingsError that lists every value out of its range."""

    accounts: int = 8
    groups: int = 10
    messages: int = 300
    """Numbered messages that want an answer; chatter comes on top."""
    rate: float = 50.0
    """Numbered messages per second."""
    seed: int = 1
    offset: int = 0
    """Moves the numbers of accounts and groups, so that simulations that run at once are strangers."""
    urls: tuple[str, ...] = ()
    """Reverse WebSocket addresses of the workers; accounts are spread over them."""
    token: str = field(default="", repr=False)
    repeats: float = 0.15
    """Share of the numbered messages that are honest repeats: same person, same text, again."""
    losses: float = 0.01
    """Share of the reports that one account never makes; the last receiver of a message is spared."""
    duplicates: float = 0.03
    """Share of the reports that the same account makes twice."""
    spread_s: float = 3.0
    """How much later than the message itself a report may come."""
    chatter: float = 0.1
    """Messages nobody should answer, as a share of the numbered ones."""
    renewals: float = 0.25
    """Share of the accounts that change to a new link once in the run and report their last messages again."""
    plain: float = 0.0
    """Share of the accounts whose end is too old to report a sequence; never Lagrange, which always does."""
    split: bool = False
    """Lagrange accounts use a pair of Api and Event sockets instead of one."""
    conduct: tuple[Conduct, ...] = (Conduct.OK,)
    """What the ends make of sends: the accounts take these in turn."""
    late_s: float = 0.0
    """How late `Conduct.LATE` answers."""
    time_scale: float = 1.0
    settle_s: float = 2.0
    """Silence after the last expected answer, in which a double would still show."""
    patience_s: float = 15.0
    """Silence after which missing answers are given up."""
    unanswered_s: float = 3600.0
    """How long after its first report a run is broken off in which nothing at all was answered."""
    connect_timeout_s: float = 30.0

    def __post_init__(self) -> None:
        wrong = [
            f"{name} is {getattr(self, name)!r}, allowed is {low:g} to {high:g}"
            for name, low, high in _RANGES
            if not low <= getattr(self, name) <= high
        ]
        if not self.urls:
            wrong.append(
                "urls is empty, at least one worker address such as ws://127.0.0.1:8090/onebot/v11/ws is needed"
            )
        if not self.conduct:
            wrong.append("conduct is empty, at least one is needed")
        wrong += [
            f"url {address_of(url)!r} does not start with ws:// or wss://"
            for url in self.urls
            if not url.startswith(("ws://", "wss://"))
        ]
        if wrong:
            raise SettingsError("the simulation cannot run: " + "; ".join(wrong))


_RANGES = (
    ("accounts", 1, 5000),
    ("groups", 1, 20_000),
    ("messages", 1, 10_000_000),
    ("offset", 0, 10_000_000),
    ("rate", 0.01, 100_000),
    ("repeats", 0, 0.9),
    ("losses", 0, 0.9),
    ("duplicates", 0, 0.9),
    ("spread_s", 0, 600),
    ("chatter", 0, 10),
    ("renewals", 0, 1),
    ("plain", 0, 1),
    ("late_s", 0, 600),
    ("time_scale", 0.001, 100),
    ("settle_s", 0, 600),
    ("patience_s", 0.01, 3600),
    ("unanswered_s", 0.01, 3600),
    ("connect_timeout_s", 0.01, 3600),
)


def address_of(url: str) -> str:
    """The part of a WebSocket address that may be shown: no credentials, no query."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    host, slash, path = rest.split("?", 1)[0].partition("/")
    return f"{scheme}{separator}{host.rsplit('@', 1)[-1]}{slash}{path}"
