"""The hub process: shows the deployment to people. It is on no message's way; workers go on without it.

This is the one place where the hub's objects are built.
"""

from __future__ import annotations

import asyncio
import functools
import os
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO, cast

import structlog
import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from pallas.addresses import is_everywhere, reachable
from pallas.clock import Clock
from pallas.deployment import DataDir
from pallas.errors import ForeignDeployment, RedisError, RedisRefused, SettingsError
from pallas.keys import Keys
from pallas.log_limit import LogLimit
from pallas.redis import Redis
from pallas.tasks import Tasks
from shard.endpoints import Endpoint, publish, withdraw
from shard.prefix import check_prefix
from shard.redis_view import RedisView
from webui.app import create_app
from webui.auth import Auth
from webui.dialled import Dialled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pallas.settings import Settings

_log = structlog.get_logger()
_SECRET = "hub-sessions"  # noqa: S105  (a file's name)
_RETRY_S = 1.0
_SHUTDOWN_S = 3

LINK_LIFE = "(valid once, for 15 minutes)"


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Nothing to do: `Hub.stop` is called."""


class Hub:
    """Pages, JSON API and health of one deployment. `redis` is an open client that the caller closes."""

    def __init__(self, settings: Settings, redis: Redis, clock: Clock) -> None:
        self._settings = settings
        self._redis = redis
        self._clock = clock
        self._folder = DataDir(settings.data_dir)
        self._tasks = Tasks()
        self._keys = Keys(settings.redis_prefix)
        self._auth = auth(settings, self._folder, clock)
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the hub."""
        return hub_url(self._settings)

    def sign_in_link(self) -> str:
        """A link that signs in once."""
        return f"{self.url}/signin?code={self._auth.issue_link()}"

    async def start(self) -> None:
        """Open the port; Redis may be away. Raises OSError where the port is taken."""
        settings = self._settings
        registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        view = RedisView(self._redis, self._keys, self._clock, name="hub", purge_s=settings.presence_purge_s)
        app = create_app(
            view,
            self._auth,
            self._clock,
            registry=registry,
            onebot_path=settings.onebot_path,
            hosts=settings.hub_hosts,
        )
        listening = _listen(settings.host, settings.hub_port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            # uvicorn wants a class and only calls it.
            ws=cast("Any", functools.partial(Dialled, LogLimit(per_min=1), settings.worker_port)),
            lifespan="off",
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        self._server = _Server(config)
        self._tasks.start(self._server.serve(sockets=[listening]), "hub.http")
        self._tasks.start(self._check_redis(), "hub.redis")
        publish(settings.data_dir, Endpoint("hub", os.getpid(), self.url, self.url))
        _log.info("hub.listening", url=self.url)

    async def serve(self) -> None:
        """Run until cancelled. Raises what ended the hub from within."""
        # Shielded: whoever stops waiting must not cancel what others wait for.
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """Close the port; answers in hand are finished."""
        if self._server is not None:
            self._server.should_exit = True
            withdraw(self._settings.data_dir, "hub")
            # uvicorn looks at the flag ten times a second.
            await asyncio.sleep(0.2)
        await self._tasks.stop()
        if self._failed.done():
            # Where something else ended the process first, nobody asked for it, and asyncio would print a traceback.
            self._failed.exception()
        _log.info("hub.stopped")

    async def _check_redis(self) -> None:
        """Once Redis answers, refuse one that forgets decisions, that refuses us, or whose prefix is another's."""
        ours = self._settings.deployment_id or self._folder.deployment_id()
        while True:
            try:
                await check_prefix(self._redis, self._keys, self._clock, ours)
            except (RedisRefused, SettingsError, ForeignDeployment) as error:
                self._failed.set_exception(error)
                return
            except RedisError:
                await asyncio.sleep(_RETRY_S)
            else:
                return


def auth(settings: Settings, folder: DataDir, clock: Clock) -> Auth:
    """The hub's gatekeeper; any process with the data folder can build it and issue links."""
    return Auth(folder.secret(_SECRET), settings.hub_token.get_secret_value() if settings.hub_token else "", clock)


def hub_url(settings: Settings) -> str:
    """Where a browser on this machine finds the hub."""
    return f"http://{reachable(settings.host)}:{settings.hub_port}"


def first_start(data_dir: Path) -> bool:
    """Whether nobody was shown a sign-in link of this data folder yet; true once."""
    try:
        (data_dir / "signed-in").touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def announce(
    settings: Settings,
    link: str,
    *,
    worker_urls: Sequence[str] = (),
    notes: Sequence[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Print where the hub is, a link that signs in once, and where protocol ends connect.

    Never logged: the link's code is a secret.
    """
    lines = ["", f"  Dashboard   {hub_url(settings)}"]
    if is_everywhere(settings.host):
        # Which of its addresses others can use, a machine does not know: behind a container or a router, none.
        lines.append(f"              from other machines: http://<address of this machine>:{settings.hub_port}")
    lines.append(f"  Sign in     {link}   {LINK_LIFE}")
    lines += [f"  Worker {shard}    {url}" for shard, url in enumerate(worker_urls)]
    lines += [line for note in notes for line in ("", f"  {note}")]
    print(*lines, "", sep="\n", file=sys.stderr if stream is None else stream, flush=True)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno,
            f"the hub cannot listen on {host}:{port} ({error.strerror}); free the port, or set another PALLAS_HUB_PORT",
        ) from error
    listening.listen(128)
    listening.setblocking(False)
    return listening
