"""Children that end with their parent, however it ends, and that are stopped in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

from pallas.procs import Child, pid_alive, spawn
from tests.support.waiting import block_until

_ROOT = Path(__file__).parents[2]
_SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]
_DEAF = [
    sys.executable,
    "-c",
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(300)",
]
_PARENT = """
import asyncio, sys, threading
from pallas.procs import spawn

async def main():
    child = await spawn("sleeper", [sys.executable, "-c", "import time; time.sleep(300)"])
    print(child.pid, flush=True)
    if sys.argv[1] == "leave":
        return
    await child.wait()

if sys.argv[2] == "thread":
    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    thread.join()
else:
    asyncio.run(main())
"""


@pytest.fixture
def strays() -> Iterator[list[int]]:
    pids: list[int] = []
    yield pids
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parent(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _PARENT, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("thread", ["main", "thread"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_ends_within_two_seconds_of_its_parent(number: signal.Signals, thread: str, strays: list[int]) -> None:
    with _parent("stay", thread) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        strays.append(pid)
        assert pid_alive(pid)
        parent.send_signal(number)
        parent.wait(5)
    block_until(lambda: not pid_alive(pid), 2.0, saying="the child is gone")


def test_a_parent_that_just_returns_leaves_no_child(strays: list[int]) -> None:
    with _parent("leave", "main") as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        strays.append(pid)
        parent.wait(5)
    block_until(lambda: not pid_alive(pid), 2.0, saying="the child is gone")


def test_a_child_whose_parent_died_before_it_could_bind_does_not_start() -> None:
    launcher = _ROOT / "pallas" / "launch.py"
    read_end, write_end = os.pipe()
    try:
        stranger = str(os.getppid())
        command = [sys.executable, "-I", "-S", str(launcher), "follow", stranger, "15", str(read_end), ""]
        done = subprocess.run(
            [*command, sys.executable, "-c", "print('ran')"], pass_fds=[read_end], capture_output=True, check=False
        )
    finally:
        os.close(read_end)
        os.close(write_end)
    assert (done.returncode, done.stdout) == (126, b"")


async def test_a_child_is_the_command_itself_with_its_exit_code_and_output() -> None:
    child = await spawn(
        "short", [sys.executable, "-c", "import os; print(os.getpid()); raise SystemExit(7)"], stdout=PIPE
    )
    assert child.stdout is not None
    assert int(await child.stdout.read()) == child.pid
    assert await child.wait() == 7
    assert child.exit_code == 7


async def test_a_command_that_does_not_exist_ends_with_127_and_says_so() -> None:
    child = await spawn("missing", ["/no/such/program"], stdout=PIPE, stderr=asyncio.subprocess.STDOUT)
    assert child.stdout is not None
    assert b"cannot run /no/such/program" in await child.stdout.read()
    assert await child.wait() == 127


async def test_a_child_gets_the_descriptors_it_was_given_and_no_others() -> None:
    read_end, write_end = os.pipe()
    try:
        listing = "import os; print(sorted(fd for fd in range(3, 256) if os.path.exists(f'/proc/self/fd/{fd}')))"
        child = await spawn("lister", [sys.executable, "-c", listing], stdout=PIPE, pass_fds=[write_end])
        assert child.stdout is not None
        assert (await child.stdout.read()).decode().strip() == str([write_end])
        await child.wait()
    finally:
        os.close(read_end)
        os.close(write_end)


async def test_a_child_runs_with_the_signals_a_program_expects() -> None:
    child = await spawn("look", ["/bin/sh", "-c", "grep SigIgn /proc/self/status"], stdout=PIPE)
    assert child.stdout is not None
    ignored = int((await child.stdout.read()).split()[1], 16)
    await child.wait()
    # What Python ignores for itself. What it was started with, by nohup for instance, is for its children too.
    assert not any(ignored & 1 << number - 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))


async def test_ctrl_c_in_the_terminal_does_not_reach_a_child() -> None:
    child = await spawn("sleeper", _SLEEPER)
    try:
        assert os.getpgid(child.pid) == child.pid
        assert os.getpgid(child.pid) != os.getpgid(0)
    finally:
        await child.stop(5)


async def test_stopping_a_child_is_polite_first() -> None:
    child = await spawn("sleeper", _SLEEPER)
    assert await child.stop(5) == -signal.SIGTERM
    assert await child.stop(5) == -signal.SIGTERM


async def _deaf() -> Child:
    child = await spawn("deaf", _DEAF, stdout=PIPE)
    assert child.stdout is not None
    assert await child.stdout.readline() == b"up\n"
    return child


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    child = await _deaf()
    assert await child.stop(0.1) == -signal.SIGKILL


async def test_a_frozen_child_is_stopped_too() -> None:
    child = await _deaf()
    child.signal(signal.SIGSTOP)
    assert await child.stop(0.1) == -signal.SIGKILL


async def test_several_may_wait_for_one_child() -> None:
    child = await spawn("sleeper", _SLEEPER)
    waiting = [asyncio.create_task(child.wait()) for _ in range(3)]
    await child.stop(5)
    assert await asyncio.gather(*waiting) == [-signal.SIGTERM] * 3


def test_a_process_is_alive_until_it_has_ended_even_if_nobody_collected_it() -> None:
    with subprocess.Popen(_SLEEPER) as process:
        assert pid_alive(process.pid)
        process.kill()
        block_until(lambda: not pid_alive(process.pid), 2.0, saying="a zombie counts as ended")
        process.wait()
    assert not pid_alive(process.pid)
    assert pid_alive(os.getpid())
    assert pid_alive(1)
    assert not pid_alive(0)
    assert not pid_alive(-1)
