"""The fake QQ of the fault tests: simulated accounts in a thread of their own, while the test breaks things.

It knows which messages surely reached a worker and which answers its ends accepted; nothing comes from the product.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from pallas.simulate import Conduct, LedgerReport, Options, Row, simulated
from tests.support.waiting import block_until


@dataclass(slots=True)
class _Shared:
    """What the test's thread sees of the other one."""

    simulation: Any = None
    ready: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)


class Traffic:
    """One load; it begins with the block, and its accounts stay connected until the block is left."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._shared = _Shared()
        self._pool = ThreadPoolExecutor(1, "traffic")
        self._played: Future[LedgerReport] = Future()
        self._run: Future[None] | None = None

    def __enter__(self) -> Self:
        self._run = self._pool.submit(lambda: asyncio.run(self._play()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._shared.over.set()
        if self._shared.simulation is not None:
            self._shared.simulation.stop()
        if self._run is not None:
            with suppress(Exception):
                self._run.result(30)
        self._pool.shutdown()

    async def _play(self) -> None:
        try:
            async with simulated(self.options) as simulation:
                await simulation.connect()
                self._shared.simulation = simulation
                self._shared.ready.set()
                self._played.set_result(await simulation.play())
                await asyncio.to_thread(self._shared.over.wait)
        except BaseException as error:
            if not self._played.done():
                self._played.set_exception(error)
            raise
        finally:
            self._shared.ready.set()

    @property
    def simulation(self) -> Any:
        """The running simulation, once its accounts are connected."""
        self._shared.ready.wait(40)
        if self._shared.simulation is None:
            self._played.result(1)
        return self._shared.simulation

    @property
    def answered(self) -> int:
        return int(self.simulation.ledger.answered)

    @property
    def sent(self) -> int:
        return int(self.simulation.ledger.sent)

    def conduct(self, conduct: Conduct, accounts: Callable[[Any], bool] = lambda _: True) -> None:
        """From now on these accounts' ends treat sends so."""
        for end in self.simulation.ends:
            if accounts(end.account):
                end.conduct = conduct

    def until(self, what: Callable[[Self], bool], timeout: float = 20.0, *, saying: str) -> None:
        """Wait until something is true of the traffic."""
        block_until(lambda: what(self), timeout, saying=saying)

    def report(self, timeout: float = 60.0) -> LedgerReport:
        """Its books, once all is said and either answered or given up."""
        return self._played.result(timeout)

    def rows(self) -> list[Row]:
        """What became of each text so far."""
        return list(self.simulation.ledger.rows())

    def urls(self, row: Row) -> frozenset[str]:
        """The workers' addresses at which a text was reported."""
        return frozenset(self.simulation.world.accounts[index].url for index in row.heard_by)
