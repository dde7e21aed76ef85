"""Commands on their way: one write per turn, and what a caller is told when the way is late, cut or blocked."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import redis as plain

from pallas.errors import RedisUnavailable, ReplyError, ReplyUnknown
from pallas.redis import Redis, parse_url, script
from pallas.redis import client as client_module
from pallas.redis.batch import Batcher, Command
from pallas.tasks import Tasks
from tests.support.opened import opened
from tests.support.proxy import Proxy, lag
from tests.support.valkey import ValkeyProcess
from tests.support.waiting import wait_until


@pytest.fixture
async def proxy(redis_url: str, valkey: ValkeyProcess) -> AsyncIterator[Proxy]:
    assert redis_url
    async with Proxy(valkey.port) as opening:
        yield opening


async def settle(*calls: Any) -> list[Any]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


def kinds(results: Sequence[object]) -> set[type]:
    return {type(result) for result in results}


async def test_commands_of_one_turn_go_out_as_one_write(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        await client.execute("PING")
        proxy.requests.clear()
        replies = await asyncio.gather(*(client.execute("ECHO", str(number)) for number in range(32)))
    assert replies == [str(number).encode() for number in range(32)]
    assert len(proxy.requests) == 1


async def test_many_commands_of_one_turn_are_shared_out_over_the_connections(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        replies = await asyncio.gather(*(client.execute("ECHO", str(number)) for number in range(200)))
        assert replies == [str(number).encode() for number in range(200)]
        assert proxy.connected == 4


async def test_a_batch_has_a_greatest_size_and_the_next_one_takes_another_connection(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        replies = await asyncio.gather(*(client.execute("ECHO", str(number)) for number in range(2000)))
    assert replies == [str(number).encode() for number in range(2000)]
    assert proxy.connected == 4


async def test_one_refused_command_fails_alone(redis_url: str) -> None:
    async with opened(redis_url) as client:
        await client.execute("SET", "text", "x", "EX", 60)
        before, refused, after = await settle(
            client.execute("GET", "text"), client.execute("HGET", "text", "field"), client.execute("GET", "text")
        )
    assert (before, after) == (b"x", b"x")
    assert isinstance(refused, ReplyError)
    assert refused.code == "WRONGTYPE"
    assert "in text;" in str(refused), "the server does not say which key it is"


@pytest.mark.parametrize("value", ["\ud800", None])
async def test_a_value_that_cannot_be_written_fails_its_own_command_alone(redis_url: str, value: Any) -> None:
    async with opened(redis_url) as client:
        before, refused, after = await settle(
            client.execute("ECHO", "a"), client.execute("ECHO", value), client.execute("ECHO", "b")
        )
        assert (before, after) == (b"a", b"b")
        assert isinstance(refused, ReplyError)
        assert refused.code == "ERR"
        assert isinstance((await settle(client.execute("ECHO", value)))[0], ReplyError)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("EVALSHA", "0" * 40, 0), "NOSCRIPT"),
        (("HGET", "only-a-key"), "ERR"),
        (("NONSENSE",), "ERR"),
        (("EVAL", "return redis.error_reply('OOM command not allowed')", 0), "OOM"),
        (("EVAL", "return redis.error_reply('MISCONF disk')", 0), "MISCONF"),
        (("EVAL", "return redis.error_reply('READONLY replica')", 0), "READONLY"),
        (("EVAL", "return redis.error_reply('CLUSTERDOWN no')", 0), "CLUSTERDOWN"),
        (("EVAL", "error('mistake')", 0), "ERR"),
    ],
)
async def test_a_refusal_keeps_its_code(redis_url: str, command: Command, code: str) -> None:
    async with opened(redis_url) as client:
        with pytest.raises(ReplyError) as refusal:
            await client.execute(*command)
    assert refusal.value.code == code


async def test_a_cancelled_caller_disturbs_nobody(redis_url: str) -> None:
    async with opened(redis_url) as client:
        await client.execute("PING")
        calls = [asyncio.ensure_future(client.execute("ECHO", str(number))) for number in range(50)]
        await asyncio.sleep(0)
        for call in calls[::3]:
            call.cancel()
        results = await settle(*calls)
        assert await client.execute("ECHO", "after") == b"after"
    for number, result in enumerate(results):
        if number % 3:
            assert result == str(number).encode()
        else:
            assert isinstance(result, asyncio.CancelledError)


@pytest.mark.row("F21")
async def test_no_answer_reaches_another_caller_whatever_is_cancelled(redis_url: str) -> None:
    rng = random.Random(7)
    wrong: list[tuple[str, object]] = []

    async def caller(name: int) -> int:
        answered = 0
        for number in range(500):
            word = f"{name}:{number}"
            call = asyncio.ensure_future(client.execute("ECHO", word))
            for _ in range(rng.randrange(3)):
                await asyncio.sleep(0)
            if rng.random() < 0.2:
                call.cancel()
            try:
                reply = await call
            except asyncio.CancelledError:
                continue
            answered += 1
            if reply != word.encode():
                wrong.append((word, reply))
        return answered

    async with opened(redis_url) as client:
        answered = await asyncio.gather(*(caller(name) for name in range(200)))
    assert wrong == []
    assert 60_000 < sum(answered) < 100_000


@pytest.mark.row("F21")
async def test_a_client_cancelled_at_any_moment_leaves_no_answer_for_the_next_one(proxy: Proxy) -> None:
    """Whatever the exchange waits for when it is cut off: the connection is not used again."""
    tasks = Tasks()
    transports = client_module._transports(parse_url(proxy.url), 4.0)[:1]
    (pipe,) = transports
    for moment in range(60):
        exchange = asyncio.ensure_future(pipe.exchange([("ECHO", f"cut-{moment}"), ("ECHO", "more")]))
        for _ in range(moment % 12):
            await asyncio.sleep(0)
        if moment % 3 == 0:
            await lag(0.002)
        exchange.cancel()
        await settle(exchange)
        if exchange.cancelled():
            # As the batcher does with a transport whose exchange was interrupted.
            await pipe.close()
        assert await pipe.exchange([("ECHO", f"next-{moment}")]) == [f"next-{moment}".encode()]
    await pipe.close()
    await tasks.stop()


async def test_a_broken_connection_fails_all_its_commands_as_unknown_and_repeats_none(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        await client.execute("PING")
        proxy.cut_before_reply = 1
        results = await settle(*(client.execute("INCR", "count") for _ in range(10)))
        assert kinds(results) == {ReplyUnknown}
        # All ten ran, none twice; and the next call simply connects again.
        assert await client.execute("GET", "count") == b"10"
        await client.execute("EXPIRE", "count", 60)


async def test_a_request_that_was_lost_is_unknown_as_well(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        await client.execute("PING")
        proxy.cut_before_request = 1
        results = await settle(*(client.execute("INCR", "count") for _ in range(10)))
        assert kinds(results) == {ReplyUnknown}
        assert await client.execute("GET", "count") is None


async def test_a_late_reply_frees_its_callers_while_the_connection_goes_on(proxy: Proxy) -> None:
    async with opened(proxy.url, late_ms=200, dead_after_ms=10_000) as client:
        await client.execute("PING")
        made = proxy.connected
        proxy.stall()
        late = await settle(*(client.execute("ECHO", f"late-{number}") for number in range(5)))
        assert kinds(late) == {ReplyUnknown}
        assert "200 ms" in str(late[0])
        proxy.resume()
        # The late replies arrive first on the wire, and reach nobody.
        await wait_until(lambda: idle(client) == 4)
        answers = await asyncio.gather(*(client.execute("ECHO", str(number)) for number in range(5)))
        assert answers == [str(number).encode() for number in range(5)]
        assert proxy.connected == made, "a slow server is not a dead one"


def idle(client: Redis) -> int:
    return len(client._batcher._idle)


async def test_a_server_that_stays_silent_is_given_up_and_found_again(proxy: Proxy) -> None:
    async with opened(proxy.url, late_ms=200, dead_after_ms=600) as client:
        await client.execute("PING")
        silent_since = client.last_reply
        proxy.stall()
        (first,) = await settle(client.execute("ECHO", "x"))
        assert isinstance(first, ReplyUnknown)
        await wait_until(lambda: idle(client) == 4)
        assert client.last_reply == silent_since
        proxy.resume()
        assert await client.execute("ECHO", "back") == b"back"
        assert client.last_reply > silent_since


async def test_what_waits_behind_silent_connections_is_given_up_unsent(proxy: Proxy) -> None:
    async with opened(proxy.url, late_ms=200, dead_after_ms=10_000) as client:
        await client.execute("PING")
        proxy.stall()
        # Four batches of 256 are under way; the rest stands in the queue.
        calls = [asyncio.ensure_future(client.execute("INCR", f"n:{number}")) for number in range(1500)]
        results = await settle(*calls)
        assert [type(result) for result in results] == [ReplyUnknown] * 1024 + [RedisUnavailable] * 476
        assert client._batcher._commands == []
        proxy.resume()
        await wait_until(lambda: idle(client) == 4)
        assert await client.execute("EXISTS", "n:1023", "n:1024", "n:1499") == 1
        await client.execute("FLUSHALL")


class Slow:
    """A transport that answers each batch after a while."""

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        await lag(0.15)
        return [command[1] for command in commands]

    async def close(self) -> None:
        pass


async def test_a_long_queue_that_moves_is_not_given_up() -> None:
    tasks = Tasks()
    batcher = Batcher([Slow()], tasks, late_s=0.4, max_batch=1)
    # The last one waits for a second, two and a half times as long as an answer may take.
    replies = await asyncio.gather(*(batcher.submit(("ECHO", number)) for number in range(7)))
    assert replies == list(range(7))
    await batcher.close()
    await tasks.stop()


async def test_while_redis_is_away_callers_are_told_that_nothing_was_sent(
    new_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = new_valkey()
    async with opened(server.url) as client:
        assert await client.execute("PING") == b"PONG"
        server.kill()
        # That it is gone is seen before anything is written.
        await lag(0.01)
        results = await settle(*(client.execute("PING") for _ in range(20)))
        assert kinds(results) == {RedisUnavailable}
        assert "cannot connect to Redis" in str(results[0])
        server.start()
        assert await client.execute("PING") == b"PONG"


async def test_a_client_that_is_stopped_while_it_connects_leaves_no_connection_open() -> None:
    arrived, left = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        while await reader.read(1000):
            pass
        left.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with opened(f"redis://127.0.0.1:{port}/0") as client:
            call = asyncio.ensure_future(client.execute("PING"))
            await asyncio.wait_for(arrived.wait(), 5)
        await asyncio.wait_for(left.wait(), 5)
        assert kinds(await settle(call)) == {ReplyUnknown}


@pytest.mark.row("F20")
async def test_an_idle_connection_that_the_server_closed_is_replaced_before_it_is_used(
    new_valkey: Callable[..., ValkeyProcess],
) -> None:
    server = new_valkey()
    async with opened(server.url) as client:
        assert await client.execute("INCR", "n") == 1
        for number in range(2, 6):
            await asyncio.to_thread(server.ask, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await lag(0.01)
            assert await client.execute("INCR", "n") == number
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        # All connections of before are gone, and the first call finds none of them broken.
        assert await client.execute("PING") == b"PONG"
        assert await client.control.execute("PING") == b"PONG"


async def test_an_idle_connection_that_was_reset_is_replaced_as_well() -> None:
    served: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(writer)
        while chunk := await reader.read(1000):
            writer.write(b"+OK\r\n" * chunk.count(b"*"))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with opened(f"redis://127.0.0.1:{port}/0") as client:
            assert await client.execute("PING") == b"OK"
            # Closed without lingering: a reset, not an orderly end.
            raw = served[0].get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            served[0].transport.abort()
            await lag(0.01)
            assert await client.execute("PING") == b"OK"
            # Something that nobody asked for: whose answer it would be taken for cannot be known.
            served[1].write(b"+STRAY\r\n")
            await lag(0.01)
            assert await client.execute("PING") == b"OK"
            assert len(served) == 3


async def test_nothing_is_connected_before_the_first_command(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        assert proxy.connected == 0
        await client.execute("PING")
        assert proxy.connected == 1


async def test_after_close_a_command_is_refused_instead_of_connecting_again(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        await client.execute("PING")
        await client.close()
        made = proxy.connected
        with pytest.raises(RedisUnavailable, match="closed"):
            await client.execute("PING")
        assert proxy.connected == made


async def test_close_frees_those_who_still_wait(proxy: Proxy) -> None:
    async with opened(proxy.url) as client:
        await client.execute("PING")
        proxy.stall()
        calls = [asyncio.ensure_future(client.execute("PING")) for _ in range(1500)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await client.close()
        results = await settle(*calls)
    assert kinds(results) == {ReplyUnknown, RedisUnavailable}


async def test_an_error_of_the_transport_itself_frees_the_callers_and_is_seen() -> None:
    class Broken:
        async def exchange(self, commands: Sequence[Command]) -> list[Any]:
            raise KeyError(len(commands))

        async def close(self) -> None:
            self.is_closed = True

    tasks, transport = Tasks(), Broken()
    batcher = Batcher([transport], tasks)
    with pytest.raises(ReplyUnknown, match="interrupted"):
        await batcher.submit(("PING",))
    assert transport.is_closed
    # The transport is back in use: a second command gets its answer, not a place in a queue for ever.
    with pytest.raises(ReplyUnknown):
        await batcher.submit(("PING",))
    await batcher.close()
    await tasks.stop()


async def test_a_script_that_the_server_lost_is_sent_with_its_source(redis_url: str) -> None:
    probe = script("ready_write")
    async with opened(redis_url) as client:
        for _ in range(2):
            assert await client.run(probe, probe.named(ready="r", life_s=60)) > 1_700_000_000
            with plain.Redis.from_url(redis_url) as admin:
                admin.script_flush()
        results = await asyncio.gather(*(client.run(probe, probe.named(ready="r", life_s=60)) for _ in range(50)))
        assert len(results) == 50


async def test_a_wrong_password_is_told_without_showing_it(new_valkey: Callable[..., ValkeyProcess]) -> None:
    server = new_valkey()
    with plain.Redis.from_url(server.url) as admin:
        admin.config_set("requirepass", "right-one")
        async with opened(server.url.replace("://", "://:wrong-one@")) as client:
            with pytest.raises(RedisUnavailable) as refusal:
                await client.execute("PING")
        assert "wrong-one" not in str(refusal.value)
        assert "password" in str(refusal.value).lower()
        admin.execute_command("AUTH", "right-one")
