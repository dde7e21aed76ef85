"""A worker: what it is made of, how it starts and how it stops.

This is the one place where a worker's objects are built. Links are accepted before Redis is asked anything, so that
protocol ends get in while Redis is away; messages then wait until a lease is held.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

import structlog

from pallas.addresses import reachable
from pallas.claims import Claims
from pallas.clock import Clock
from pallas.deployment import DataDir
from pallas.errors import RedisError
from pallas.faults import faults_of
from pallas.keys import Keys
from pallas.levels import People
from pallas.metrics import Meters
from pallas.onebot.decode import Limits
from pallas.onebot.listener import Listener, ListenerSettings
from pallas.redis import Redis
from pallas.tasks import Tasks, every
from pallas.version import VERSION
from shard.actions import Calls
from shard.endpoints import Endpoint, publish, withdraw
from shard.fleet import Fleet
from shard.joining import join
from shard.lapses import Lapses
from shard.matching import Table
from shard.notices import NoticeTable
from shard.orphans import Orphans
from shard.pipeline import Pipeline
from shard.prefix import own_prefix
from shard.presence import PresenceBook
from shard.probes import Probes
from shard.pulse import Pulse
from shard.reception import Reception
from shard.redis_view import RedisView
from shard.registry import Lease
from shard.report import NOTICE_CLOCKS_S
from shard.roster import Roster
from shard.runner import Runner
from shard.selfcheck import PERIOD_S as JUDGE_S
from shard.selfcheck import SelfCheck
from shard.standby import Standby
from shard.terms import TermsBook

if TYPE_CHECKING:
    from pallas.app import App
    from pallas.settings import Settings

_log = structlog.get_logger()
_PUBLISH_S = 1.0
_SUPPRESSED_S = 10.0
_LAST_CLAIMS_S = 1.5
_GOODBYE_S = 4.0
_LATE_S = 60.0
"""A message is remembered so much longer than it may still be reported: clocks differ, and Redis may be slow."""


class Worker:
    """One shard: its links, its lease and the handlers of its bot.

    `redis` is an open client that the caller closes; `wait_for_id` makes a fixed shard id that another worker holds
    a reason to wait instead of an error.
    """

    def __init__(
        self,
        settings: Settings,
        app: App,
        redis: Redis,
        clock: Clock,
        *,
        make_loop: Callable[[], asyncio.AbstractEventLoop],
        wait_for_id: bool = False,
    ) -> None:
        self._settings = settings
        self._app = app
        self._redis = redis
        self._clock = clock
        self._wait_for_id = wait_for_id
        self._token = settings.onebot_token.get_secret_value() if settings.onebot_token else ""
        self._folder = DataDir(settings.data_dir)
        self._tasks = Tasks()
        self._beats = Tasks()
        self._stopped = False
        self._started_at = clock.wall_s()
        self._listener: Listener | None = None
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.meters = Meters()
        self.keys = Keys(settings.redis_prefix)
        self.lease = Lease(
            redis.control,
            self.keys,
            clock,
            shard_id=settings.shard_id,
            life_s=settings.lease_s,
            info=self._info,
            lost=self._count_lapse,
            before=self._own_prefix,
        )
        self.roster = Roster()
        self.fleet = Fleet(redis.patient, self.keys, clock, settings.accounts)
        self.presence = PresenceBook(
            redis.control, self.keys, self.lease, self.roster, purge_s=settings.presence_purge_s
        )
        self.terms = TermsBook(redis.control, self.keys, clock, self.roster)
        self.selfcheck = SelfCheck(self.roster.conducts, self.meters)
        faults = faults_of(settings.test_fault, testing=settings.testing)
        self.claims = Claims(redis, self.lease, self._tasks, self.meters, ttl_s=settings.claim_ttl_s, faults=faults)
        self.lapses = Lapses(redis.patient, self.keys, clock, life_s=settings.lease_s)
        self.calls = Calls(
            self.roster,
            self.claims,
            self.meters,
            clock,
            timeout_s=settings.action_timeout_s,
            is_leased=self.lease.is_held,
            faults=faults,
        )
        self.runner = Runner(self.meters, timeout_s=settings.handler_timeout_s, make_loop=make_loop)
        self.pulse = Pulse(redis.patient, self.keys, self.lease, self.meters, self.runner, clock)
        self.pipeline = Pipeline(
            app=app,
            fleet=self.fleet,
            keys=self.keys,
            table=Table(
                self.keys,
                max_entries=settings.match_entries,
                keep_s=settings.match_keep_s,
                keep_plain_s=settings.stale_s + _LATE_S,
                terms=self.terms.terms,
                conducts=self.roster.conducts,
            ),
            notices=NoticeTable(
                max_entries=settings.match_entries,
                keep_s=settings.notice_stale_s + _LATE_S,
                clocks_s=NOTICE_CLOCKS_S,
            ),
            claims=self.claims,
            calls=self.calls,
            runner=self.runner,
            people=People(
                frozenset(settings.superusers), frozenset(settings.bot_moderators), frozenset(settings.staff)
            ),
            clock=clock,
            meters=self.meters,
            tasks=self._tasks,
            stale_s=settings.stale_s,
            notice_stale_s=settings.notice_stale_s,
            max_pending=settings.max_pending,
            is_alone=self._is_alone,
            faults=faults,
        )
        self.standby = self.pipeline.standby = Standby(
            claims=self.claims,
            lapses=self.lapses,
            clock=clock,
            meters=self.meters,
            take_up=self.pipeline.take_up,
            may_answer=self.pipeline.may_answer,
            has_room=self.pipeline.has_room,
            max_messages=settings.standby_messages,
            look_s=settings.standby_look_s,
        )
        self.orphans = Orphans(
            redis.patient,
            self.keys,
            self.claims,
            self.lapses,
            clock,
            self.meters,
            after_s=settings.orphan_after_s,
            is_leased=self.lease.is_held,
        )
        self.reception = Reception(
            pipeline=self.pipeline,
            roster=self.roster,
            fleet=self.fleet,
            presence=self.presence,
            calls=self.calls,
            clock=clock,
            meters=self.meters,
            tasks=self._tasks,
            limits=Limits(settings.max_frame_bytes, settings.max_segments, settings.max_json_depth),
            crowded=max(1, settings.max_pending // 5),
            connected=self.terms.connected,
        )

    @property
    def port(self) -> int:
        """The port of this worker's links; it follows from the shard id."""
        return self._settings.worker_port + self.lease.shard_id

    @property
    def url(self) -> str:
        """Where protocol ends of this machine connect."""
        return f"ws://{reachable(self._settings.host)}:{self.port}{self._settings.onebot_path}"

    async def start(self) -> None:
        """Open the port and take the lease. Raises ShardTaken, ForeignDeployment, SettingsError or OSError.

        With a fixed shard id the port is open at once, also while Redis is away; without one the id, and so the
        port, is known only when Redis has given it.
        """
        self._warn()
        if self._settings.shard_id is None:
            await self._join(forever=True)
            joined = True
        else:
            joined = await self._join(forever=False)
        await self._listen()
        settings = self._settings
        self._vital(self.lease.keep() if joined else self._join_late(), "lease.keep")
        self._beat(settings.presence_refresh_s, self.presence.refresh, "presence.refresh")
        self._beat(settings.presence_purge_s / 4, self.presence.purge, "presence.purge")
        self._beat(min(5.0, settings.presence_refresh_s), self._know_fleet, "fleet.refresh")
        self._beats.start(self.terms.keep(), "terms.keep")
        self._beat(JUDGE_S, self.selfcheck.look, "ends.judge")
        self._beat(settings.standby_look_s / 2, self.standby.look, "standby.look")
        self._beat(settings.orphan_after_s / 15, self.orphans.sweep, "orphans.sweep")
        self._beat(_PUBLISH_S, self.pulse.publish, "worker.publish")
        self._beat(_SUPPRESSED_S, self._say_suppressed, "log.suppressed")
        self._vital(self.pulse.watch(), "worker.watch")
        # What lives now lives as long as the process: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Nearly all garbage dies young, by its counts. The messages of a burst are some 50 000 objects: a look in its
        # middle would go through all and free none; one at 100 000 remembered messages stops the loop for 40 ms.
        gc.set_threshold(100_000, 20, 1000)

    def _warn(self) -> None:
        settings = self._settings
        if not self._token:
            _log.warning(
                "onebot.no_token",
                hint="only protocol ends on this machine are let in; set PALLAS_ONEBOT_TOKEN for others",
            )
        if settings.federate_id:
            _log.warning(
                "federate.not_served", hint="this version does not join pools yet: PALLAS_FEDERATE_ID is unused"
            )

    async def _join(self, *, forever: bool, said: str = "") -> bool:
        return await join(self.lease, forever=forever, wait_for_id=self._wait_for_id, said=said)

    async def _join_late(self) -> None:
        await self._join(forever=True, said="redis")
        await self.lease.keep()

    async def _own_prefix(self) -> None:
        ours = self._settings.deployment_id or self._folder.deployment_id()
        await own_prefix(self._redis.control, self.keys, self._clock, ours)

    def _probes(self) -> Probes:
        view = RedisView(self._redis, self.keys, self._clock, name=f"worker-{self.lease.shard_id}", purge_s=0)
        return Probes(view, self.meters, self._clock, self._obstacle)

    async def _listen(self) -> None:
        settings = self._settings
        self._listener = Listener(
            ListenerSettings(
                host=settings.host,
                port=self.port,
                path=settings.onebot_path,
                token=self._token,
                max_frame_bytes=settings.max_frame_bytes,
                max_links=settings.max_links,
                ping_interval_s=settings.ping_interval_s,
            ),
            self.reception,
            self._clock,
            pages=self._probes().pages(),
            handshakes=self._count_handshake,
        )
        try:
            await self._listener.start()
        except OSError as error:
            await self.lease.release()
            raise OSError(
                error.errno,
                f"shard {self.lease.shard_id} cannot listen on {settings.host}:{self.port} ({_words(error)}); "
                "free the port, or set another PALLAS_WORKER_PORT (shard K listens on it + K)",
            ) from error
        base = f"http://{reachable(settings.host)}:{self.port}"
        publish(settings.data_dir, Endpoint(f"worker-{self.lease.shard_id}", os.getpid(), self.url, base))
        _log.info("worker.listening", shard_id=self.lease.shard_id, url=self.url, app=self._app.name)

    async def serve(self) -> None:
        """Run until cancelled. Raises what ended the worker from within."""
        # Shielded: whoever stops waiting must not cancel what others wait for.
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Finish the work in hand, then let go: presence, lease and links, in this order. Once."""
        if self._stopped:
            return
        self._stopped = True
        if self._failed.done():
            # Whoever served has seen it, or is being stopped: it is no forgotten error.
            self._failed.exception()
        self.pipeline.draining = True
        limit = self._clock.mono() + self._settings.drain_grace_s
        while (len(self.runner) or self.meters.pending) and self._clock.mono() < limit:  # noqa: ASYNC110  (once)
            await asyncio.sleep(0.02)
        # Before the lease goes: what is cut off here, and what Redis grants from here on, has an outcome to record.
        await self.runner.stop()
        limit = self._clock.mono() + _LAST_CLAIMS_S
        while self.meters.pending and self._clock.mono() < limit:  # noqa: ASYNC110  (once)
            await asyncio.sleep(0.02)
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.claims.settled(2.0)
                await self.pulse.publish()
                # No beat may write again what is taken away now.
                await self._beats.stop()
                await self.presence.clear([account.bot_id for account in self.roster])
                await self.lease.release()
        except (RedisError, TimeoutError) as error:
            _log.warning(
                "worker.left_without_goodbye", error=str(error), hint="its lease and presence lapse by themselves"
            )
        if self._listener is not None:
            await self._listener.stop()
            withdraw(self._settings.data_dir, f"worker-{self.lease.shard_id}")
        await self._beats.stop()
        self.pipeline.is_over = True
        await self._tasks.stop()
        _log.info("worker.stopped", shard_id=self.lease.shard_id)

    def _beat(self, seconds: float, work: Callable[[], Awaitable[object]], name: str) -> None:
        self._beats.start(every(seconds, work, name=name), name)

    def _vital(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Without this work the worker is deaf: its end ends the worker."""

        async def until_it_fails() -> None:
            try:
                await work
            except Exception as error:
                if not self._failed.done():
                    self._failed.set_exception(error)

        self._beats.start(until_it_fails(), name)

    async def _know_fleet(self) -> None:
        await self.fleet.announce(list(self.roster))
        await self.fleet.refresh()

    async def _say_suppressed(self) -> None:
        self.claims.complaints.flush()
        self.orphans.complaints.flush()
        self.reception.complaints.flush()
        self.selfcheck.complaints.flush()
        if self._listener is not None:
            self._listener.complaints.flush()

    def _info(self) -> dict[str, object]:
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "listen": self._settings.host,
            "base_port": self._settings.worker_port,
            "app": self._app.name,
            "version": VERSION,
            "started_at": self._started_at,
            "lease_s": self._settings.lease_s,
        }

    def _is_alone(self) -> bool:
        return self.lapses.has_looked and not self.lapses.live - {self.lease.epoch}

    def _count_lapse(self) -> None:
        self.meters.lapses += 1

    def _count_handshake(self, result: str) -> None:
        self.meters.handshakes[result] += 1

    def _obstacle(self) -> str:
        if self.pipeline.draining:
            return "draining"
        if self.runner.is_stuck:
            return "handlers_blocked"
        return "" if self.lease.is_held() else "no_lease"


def _words(error: OSError) -> str:
    """The system's words for an error; asyncio's own repeat the address."""
    return os.strerror(error.errno) if error.errno else str(error)
