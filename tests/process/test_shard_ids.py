"""Which worker has which number: one live worker per shard id, also while Redis is away or someone was killed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.deployment import Site, api, ended, events, get, is_ready, site
from tests.support.processes import PallasProcess
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import block_until

APP = ("--app", "pallas.demo:app")
LEASE_S = 1.5


@pytest.fixture
def here(tmp_path: Path, redis_url: str) -> Iterator[Site]:
    with site(tmp_path, PALLAS_REDIS_URL=redis_url, PALLAS_LEASE_S=str(LEASE_S)) as here:
        yield here


def started(here: Site, name: str, *more: str, shard: int | None = None) -> PallasProcess:
    """A worker that is ready; without `shard` whichever it took."""
    fixed = () if shard is None else ("--shard-id", str(shard))
    process = here.start(name, "worker", *fixed, *APP, *more)
    block_until(lambda: _taken(process) is not None, 20, saying=f"{name} holds an id")
    return process


def _taken(process: PallasProcess) -> int | None:
    assert process.exit_code is None, process.output()
    listening = events(process, "worker.listening")
    return int(listening[-1]["shard_id"]) if listening and events(process, "lease.taken") else None


@pytest.mark.row("F6")
def test_second_worker_with_the_same_id_is_refused_and_told_who_has_it(here: Site) -> None:
    first = started(here, "first", shard=0)
    second = here.start("second", "worker", "--shard-id", "0", *APP)
    assert ended(second) == 1
    assert f"shard id 0 is leased to another worker (pid {first.pid} on " in second.output()
    assert "Traceback" not in second.output()
    assert is_ready(here.worker_url(0))
    # The refused one must not have taken the other's place in the folder either.
    assert (here.data / "run" / "worker-0.json").exists()


@pytest.mark.row("F6")
def test_of_two_that_start_at_once_with_one_id_one_is_refused(here: Site) -> None:
    both = [here.start(name, "worker", "--shard-id", "0", *APP) for name in ("one", "two")]
    block_until(lambda: [process.exit_code for process in both].count(1) == 1, 20, saying="one is refused")
    (stays,) = [process for process in both if process.exit_code is None]
    block_until(lambda: is_ready(here.worker_url(0)), 10, saying="the other is ready")
    assert sum(len(events(process, "lease.taken")) for process in both) == 1
    assert stays.exit_code is None


@pytest.mark.row("F6")
def test_waiting_worker_takes_over_from_a_killed_one_when_its_lease_has_lapsed(here: Site) -> None:
    first = started(here, "first", shard=0)
    second = here.start("second", "worker", "--shard-id", "0", "--wait", *APP)
    (waiting,) = block_until(lambda: events(second, "lease.waiting"), 10, saying="it says that it waits")
    assert re.fullmatch(rf"the lease of shard 0 \(pid {first.pid} on .+\) has not lapsed yet", waiting["detail"])
    first.kill()
    killed = time.monotonic()
    block_until(lambda: events(second, "worker.listening"), 10, saying="it took over")
    # The lease stood for a third of its life at least, and the old epoch is never used again.
    assert time.monotonic() - killed > LEASE_S / 3
    (old,), (new,) = events(first, "lease.taken"), events(second, "lease.taken")
    assert (old["shard_id"], new["shard_id"]) == (0, 0)
    assert new["epoch"] > old["epoch"]
    assert is_ready(here.worker_url(0))


def test_waiting_worker_takes_over_at_once_from_one_that_stopped(here: Site) -> None:
    first = started(here, "first", shard=0)
    second = here.start("second", "worker", "--shard-id", "0", "--wait", *APP)
    block_until(lambda: events(second, "lease.waiting"), 10, saying="it says that it waits")
    assert first.terminate() == 0
    block_until(lambda: events(second, "worker.listening"), 5, saying="it took over")
    assert is_ready(here.worker_url(0))


def test_workers_without_id_take_the_lowest_free_one_and_its_port(here: Site) -> None:
    started(here, "fixed", shard=1)
    zero = started(here, "zero")
    assert _taken(zero) == 0
    assert is_ready(here.worker_url(0))
    two = started(here, "two")
    assert _taken(two) == 2
    assert is_ready(here.worker_url(2))
    assert zero.terminate() == 0
    again = started(here, "again")
    assert _taken(again) == 0


def test_three_workers_started_at_once_get_three_ids(here: Site) -> None:
    workers = [here.start(f"w{number}", "worker", *APP) for number in range(3)]
    block_until(lambda: None not in map(_taken, workers), 20, saying="all three hold an id")
    ids = sorted(shard for shard in map(_taken, workers) if shard is not None)
    assert ids == [0, 1, 2]
    assert all(is_ready(here.worker_url(shard)) for shard in ids)
    here.start("hub", "hub")
    block_until(lambda: is_ready(here.hub_url), 10, saying="the hub is ready")
    rows = api(here, "shards")["shards"]
    assert sorted(row["pid"] for row in rows) == sorted(worker.pid for worker in workers)


@pytest.fixture
def dead_valkey(new_valkey: Callable[..., ValkeyProcess]) -> ValkeyProcess:
    """A server with an address, and not running."""
    server = new_valkey()
    server.stop()
    return server


def test_worker_without_id_waits_for_redis_and_says_so(tmp_path: Path, dead_valkey: ValkeyProcess) -> None:
    with site(tmp_path, PALLAS_REDIS_URL=dead_valkey.url) as here:
        worker = here.start("worker", "worker", *APP)
        block_until(lambda: events(worker, "redis.waiting"), 10, saying="it says that it waits")
        assert get(here.worker_url(0) + "/healthz") == (0, "")
        dead_valkey.start()
        block_until(lambda: is_ready(here.worker_url(0)), 10, saying="it is ready")
        assert len(events(worker, "redis.waiting")) == 1
        assert worker.terminate() == 0


def test_worker_with_id_accepts_links_before_redis_is_there(tmp_path: Path, dead_valkey: ValkeyProcess) -> None:
    with site(tmp_path, PALLAS_REDIS_URL=dead_valkey.url) as here:
        worker = here.start("worker", "worker", "--shard-id", "0", *APP)
        hub = here.start("hub", "hub")
        demo = here.start("demo", "demo", "--json", "--messages", "40", "--url", _url(here))
        block_until(lambda: len(events(worker, "link.opened")) >= 8, 20, saying="the accounts are connected")
        assert get(here.worker_url(0) + "/readyz")[0] == 503
        dead_valkey.start()
        assert ended(demo, 30) == 0, demo.output()
        assert is_ready(here.worker_url(0))
        block_until(lambda: is_ready(here.hub_url), 5, saying="the hub is ready")
        block_until(lambda: api(here, "books")["ended"]["handled"] == 40, 5, saying="all were handled")
        assert worker.terminate() == 0
        assert hub.terminate() == 0


def _url(here: Site) -> str:
    return f"ws://127.0.0.1:{here.worker_port}/onebot/v11/ws"


def test_hub_starts_without_redis_and_is_ready_once_that_is_there(tmp_path: Path, dead_valkey: ValkeyProcess) -> None:
    with site(tmp_path, PALLAS_REDIS_URL=dead_valkey.url) as here:
        hub = here.start("hub", "hub")
        block_until(lambda: get(here.hub_url + "/healthz")[0] == 200, 10, saying="the hub answers")
        assert get(here.hub_url + "/readyz")[0] == 503
        dead_valkey.start()
        block_until(lambda: is_ready(here.hub_url), 10, saying="the hub is ready")
        assert hub.terminate() == 0
        assert "Traceback" not in hub.output()


def test_two_deployments_on_one_prefix_are_refused(here: Site, tmp_path: Path) -> None:
    started(here, "ours", shard=0)
    other = tmp_path / "other"
    for name, command in (("worker", ("worker", "--shard-id", "1", *APP)), ("hub", ("hub",))):
        process = here.start(f"their-{name}", *command, "--data", str(other))
        assert ended(process) == 1
        assert "belongs to another deployment" in process.output()
        assert "PALLAS_REDIS_PREFIX" in process.output()
        assert "Traceback" not in process.output()
    theirs = here.start("theirs", "worker", "--shard-id", "1", *APP, "--data", str(other), PALLAS_REDIS_PREFIX="other")
    block_until(lambda: events(theirs, "lease.taken"), 10, saying="with a prefix of its own it runs")


def test_redis_that_forgets_claims_is_refused(tmp_path: Path, new_valkey: Callable[..., ValkeyProcess]) -> None:
    forgetful = new_valkey("--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb")
    with site(tmp_path, PALLAS_REDIS_URL=forgetful.url) as here:
        for name, command in (
            ("worker", ("worker", "--shard-id", "0", *APP)),
            ("hub", ("hub",)),
            ("up", ("up", "--workers", "1", *APP)),
            ("unified", ("unified", *APP)),
        ):
            process = here.start(name, *command)
            assert ended(process, 30) == 1, name
            assert "noeviction" in process.output(), process.output()
            assert "Traceback" not in process.output(), process.output()
            assert not here.family.members(), name


@pytest.mark.parametrize("command", ["unified", "hub", "worker"])
def test_redis_that_turns_up_late_and_forgets_claims_is_refused(
    tmp_path: Path, new_valkey: Callable[..., ValkeyProcess], command: str
) -> None:
    forgetful = new_valkey("--maxmemory-policy", "allkeys-lru", "--maxmemory", "64mb")
    forgetful.stop()
    with site(tmp_path, PALLAS_REDIS_URL=forgetful.url) as here:
        arguments = {"unified": APP, "hub": (), "worker": ("--shard-id", "0", *APP)}[command]
        process = here.start(command, command, *arguments)
        base = here.worker_url(0) if command == "worker" else here.hub_url
        block_until(lambda: get(f"{base}/healthz")[0] == 200, 15, saying="it runs without Redis")
        forgetful.start()
        assert ended(process, 15) == 1
        assert "noeviction" in process.output(), process.output()
        assert "Traceback" not in process.output(), process.output()
