"""The accounts that are connected to this worker, and which of their links to use.

One account may have several links: a reconnect that overlaps the old socket, or actions and events on two. All are
kept until they close; the newest one is used. What is known of an account survives its links.
"""

from __future__ import annotations

from collections.abc import Iterator

from pallas.model import Heartbeat
from pallas.onebot.ends import End
from pallas.onebot.link import Link, Role
from shard.conduct import Conducts

_MOST_FORMER = 4096
"""So many accounts without a link are remembered; then the one that left first is forgotten."""
_MOST_STRAYS = 64
"""So many conducts of forgotten accounts are kept, so that all are looked through once for many that leave."""


class Account:
    """One account of this worker; times are Unix seconds, 0.0 where nothing happened yet."""

    __slots__ = (
        "bot_id",
        "connected_at",
        "end",
        "heartbeat_at",
        "last_event_at",
        "last_sent_at",
        "links",
        "nickname",
        "online",
        "reconnects",
        "version",
    )

    def __init__(self, bot_id: str) -> None:
        self.bot_id = bot_id
        self.links: list[Link] = []
        self.end = End.UNKNOWN
        self.version = ""
        self.nickname = ""
        self.connected_at = 0.0
        self.heartbeat_at = 0.0
        self.online: bool | None = None
        self.last_event_at = 0.0
        self.last_sent_at = 0.0
        self.reconnects = -1

    def __repr__(self) -> str:
        return f"<Account {self.bot_id} {self.end} links={len(self.links)}>"

    def speaker(self) -> Link | None:
        """The newest open link that takes actions."""
        for link in reversed(self.links):
            if link.is_open and link.role is not Role.EVENT:
                return link
        return None

    def beat(self, heartbeat: Heartbeat, now: float) -> None:
        self.heartbeat_at = now
        self.online = heartbeat.online


class Roster:
    """Accounts by id."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._former: dict[str, Account] = {}
        self.conducts = Conducts()
        """How their ends behave; kept also while they have no link, as long as they are remembered."""

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())

    def __len__(self) -> int:
        return len(self._accounts)

    def __contains__(self, bot_id: str) -> bool:
        return bot_id in self._accounts

    def get(self, bot_id: str) -> Account | None:
        """The account, where it has an open link."""
        return self._accounts.get(bot_id)

    def join(self, link: Link, now: float) -> Account:
        """Take a link in; it is the newest of its account from now on."""
        account = self._accounts.get(link.bot_id)
        if account is None:
            former = self._former.pop(link.bot_id, None)
            account = self._accounts[link.bot_id] = former or Account(link.bot_id)
        if not account.links:
            account.connected_at = now
            account.reconnects += 1
            account.online = None
        account.links.append(link)
        if link.end is not End.UNKNOWN or account.end is End.UNKNOWN:
            account.end, account.version = link.end, link.version or account.version
        return account

    def leave(self, link: Link) -> bool:
        """Take a closed link out; True where that was the account's last one."""
        account = self._accounts.get(link.bot_id)
        if account is None or link not in account.links:
            return False
        account.links.remove(link)
        if account.links:
            return False
        self._former[link.bot_id] = self._accounts.pop(link.bot_id)
        if len(self._former) > _MOST_FORMER:
            del self._former[next(iter(self._former))]
            if len(self.conducts) > len(self._accounts) + len(self._former) + _MOST_STRAYS:
                self._forget_strays()
        return True

    def _forget_strays(self) -> None:
        # Also those of accounts whose last report was looked at only after they were forgotten.
        for bot_id in self.conducts.keys() - self._accounts.keys() - self._former.keys():
            del self.conducts[bot_id]
