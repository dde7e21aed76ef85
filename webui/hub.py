"""The hub process: shows the deployment to people. It is on no message's way; workers go on without it.

This is the one place where the hub's objects are built.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import structlog
import uvicorn
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from pallas.clock import Clock
from pallas.deployment import DataDir
from pallas.errors import ForeignDeployment, RedisError, SettingsError
from pallas.keys import Keys
from pallas.redis import Redis, fatal_problems
from pallas.tasks import Tasks
from shard.endpoints import Endpoint, publish, withdraw
from shard.redis_view import RedisView
from webui.app import create_app
from webui.auth import Auth

if TYPE_CHECKING:
    from pathlib import Path

    from pallas.settings import Settings

_log = structlog.get_logger()
_SECRET = "hub-sessions"  # noqa: S105  (a file's name)
_RETRY_S = 1.0
_SHUTDOWN_S = 3


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs it."""

    def install_signal_handlers(self) -> None:
        """Nothing: `pallas.cli` owns them."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not called, and nothing to do."""


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
            ws="none",
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
        _log.info("hub.stopped")

    async def _check_redis(self) -> None:
        """Once Redis answers, refuse one that forgets claims or is another deployment's."""
        while True:
            try:
                found = await fatal_problems(self._redis, self._clock)
                owner = await self._redis.execute("GET", self._keys.deployment)
                break
            except RedisError:
                await asyncio.sleep(_RETRY_S)
        if found:
            self._failed.set_exception(SettingsError("; ".join(found)))
        elif owner is not None and owner.decode() != (self._settings.deployment_id or self._folder.deployment_id()):
            self._failed.set_exception(
                ForeignDeployment(
                    f"the Redis prefix {self._keys.prefix!r} belongs to another deployment. If this is another "
                    f"machine of the same deployment, set PALLAS_DEPLOYMENT_ID={owner.decode()} here; if it is a "
                    "deployment of its own, set another PALLAS_REDIS_PREFIX"
                )
            )


def auth(settings: Settings, folder: DataDir, clock: Clock) -> Auth:
    """The hub's gatekeeper; any process with the data folder can build it and issue links."""
    return Auth(folder.secret(_SECRET), settings.hub_token.get_secret_value() if settings.hub_token else "", clock)


def hub_url(settings: Settings) -> str:
    """Where a browser on this machine finds the hub."""
    host = settings.host
    shown = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host  # noqa: S104
    return f"http://{shown}:{settings.hub_port}"


def first_start(data_dir: Path) -> bool:
    """Whether nobody was shown a sign-in link of this data folder yet; true once."""
    try:
        (data_dir / "signed-in").touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    return True


def announce(hub: Hub, stream: TextIO = sys.stderr) -> None:
    """Print the hub's address with a link that signs in once. Never logged: the code is a secret."""
    _print(hub.url, hub.sign_in_link(), stream)


def announce_url(settings: Settings, clock: Clock, worker_urls: list[str], stream: TextIO = sys.stderr) -> None:
    """The same for a hub that runs in another process, with where protocol ends connect."""
    url = hub_url(settings)
    code = auth(settings, DataDir(settings.data_dir), clock).issue_link()
    _print(url, f"{url}/signin?code={code}", stream)
    for shard, worker_url in enumerate(worker_urls):
        print(f"  Worker {shard}    {worker_url}", file=stream)
    print(file=stream, flush=True)


def _print(url: str, link: str, stream: TextIO) -> None:
    print(f"\n  Dashboard   {url}\n  Sign in     {link}   (valid once, for 15 minutes)", file=stream, flush=True)


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
