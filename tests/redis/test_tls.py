"""TLS to Redis: the authority that was named and no other, the host that was asked for and no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from pallas.errors import RedisUnavailable, SettingsError
from tests.support.opened import opened
from tests.support.tls import Certificates, tls_end
from tests.support.valkey import ValkeyProcess


async def test_commands_go_through_and_what_is_on_the_wire_is_no_redis(valkey: ValkeyProcess, tmp_path: Path) -> None:
    issued = Certificates(tmp_path)
    with tls_end(valkey.port, issued.context()) as port:
        async with opened(f"rediss://127.0.0.1:{port}/0?tls_ca={issued.ca}") as client:
            assert await client.execute("ECHO", "secret") == b"secret"
        async with opened(f"redis://127.0.0.1:{port}/0", late_ms=1000, dead_after_ms=1000) as plain:
            with pytest.raises(RedisUnavailable):
                await plain.execute("ECHO", "secret")


async def test_another_authority_is_refused(valkey: ValkeyProcess, tmp_path: Path) -> None:
    issued = Certificates(tmp_path)
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other")
    with tls_end(valkey.port, issued.context()) as port:
        async with opened(f"rediss://127.0.0.1:{port}/0?tls_ca={other.ca}") as client:
            with pytest.raises(RedisUnavailable, match=r"certificate.*tls_ca"):
                await client.execute("PING")
        async with opened(f"rediss://127.0.0.1:{port}/0") as client:
            with pytest.raises(RedisUnavailable, match=r"certificate.*tls_ca"):
                await client.execute("PING")


async def test_a_certificate_of_another_host_is_refused(valkey: ValkeyProcess, tmp_path: Path) -> None:
    issued = Certificates(tmp_path, "redis.example")
    with tls_end(valkey.port, issued.context()) as port:
        for host in ("127.0.0.1", "localhost"):
            async with opened(f"rediss://{host}:{port}/0?tls_ca={issued.ca}") as client:
                with pytest.raises(RedisUnavailable, match=f"certificate is not.* for .*{host}"):
                    await client.execute("PING")


async def test_a_server_that_wants_a_client_certificate_gets_it(valkey: ValkeyProcess, tmp_path: Path) -> None:
    issued = Certificates(tmp_path)
    with tls_end(valkey.port, issued.context(wants_client=True)) as port:
        url = f"rediss://127.0.0.1:{port}/0?tls_ca={issued.ca}"
        async with opened(f"{url}&tls_cert={issued.cert}&tls_key={issued.key}") as client:
            assert await client.execute("PING") == b"PONG"
        async with opened(url) as client:
            with pytest.raises(RedisUnavailable):
                await client.execute("PING")


async def test_a_file_that_is_not_there_is_named(valkey: ValkeyProcess, tmp_path: Path) -> None:
    issued = Certificates(tmp_path)
    with tls_end(valkey.port, issued.context()) as port:
        url = f"rediss://127.0.0.1:{port}/0?tls_ca={tmp_path}/none.pem"
    with pytest.raises(SettingsError, match=r"tls_ca=.*none\.pem cannot be read \(No such file"):
        async with opened(url):
            pass


async def test_a_server_without_tls_is_told_apart_from_a_wrong_certificate(valkey: ValkeyProcess) -> None:
    async with opened(f"rediss://127.0.0.1:{valkey.port}/0", late_ms=3000, dead_after_ms=500) as client:
        with pytest.raises(RedisUnavailable, match=r"cannot connect to Redis.*speak TLS") as refusal:
            await client.execute("PING")
    assert "certificate" not in str(refusal.value)
