"""compose.yaml and the Dockerfile without an engine: their form, and their commands as plain processes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support import compose
from tests.support.processes import PallasProcess
from tests.support.tree import ROOT
from tests.support.valkey import free_ports
from tests.support.waiting import wait_until

TOKENS = {"PALLAS_ONEBOT_TOKEN": "onebot-token-of-the-test", "PALLAS_HUB_TOKEN": "hub-token-of-the-test"}
REDIS_HOST = "valkey:6379"


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return compose.raw(ROOT / "compose.yaml")


@pytest.fixture(scope="module")
def dockerfile() -> list[str]:
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_compose_file_fits_the_schema(document: dict[str, Any]) -> None:
    schema = json.loads((ROOT / "tests/data/compose-schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(document)


def test_compose_refuses_to_start_without_tokens(document: dict[str, Any]) -> None:
    for missing in TOKENS:
        given = {name: value for name, value in TOKENS.items() if name != missing}
        with pytest.raises(compose.MissingVariableError, match=missing):
            compose.services(document, given)


def test_second_deployment_starts_only_with_its_profile(document: dict[str, Any]) -> None:
    first = compose.services(document, TOKENS)
    both = compose.services(document, TOKENS, "second")
    assert sorted(first) == ["hub", "valkey", "worker-0", "worker-1"]
    assert sorted(both.keys() - first.keys()) == ["second-hub", "second-worker-0"]


def test_deployments_share_neither_prefix_nor_data_nor_ports(document: dict[str, Any]) -> None:
    both = _own(compose.services(document, TOKENS, "second"))
    of = {name: "second" if name.startswith("second-") else "first" for name in both}
    for what in (_prefix, _volumes):
        first, second = ({what(both[name]) for name in both if of[name] == side} for side in ("first", "second"))
        assert len(first) == len(second) == 1
        assert first != second
    published = [port for service in both.values() for port in service["ports"]]
    assert len(set(published)) == len(published)


def test_each_service_publishes_and_checks_the_port_it_listens_on(document: dict[str, Any]) -> None:
    for name, service in _own(compose.services(document, TOKENS, "second")).items():
        port = _port(service)
        assert service["ports"] == [f"127.0.0.1:{port}:{port}"], name
        assert service["environment"]["HEALTH_PORT"] == str(port), name


def test_a_killed_worker_that_comes_back_waits_for_its_lease_to_lapse(document: dict[str, Any]) -> None:
    workers = [service for name, service in _own(document["services"]).items() if "worker" in name]
    assert len(workers) == 3
    assert all("--wait" in service["command"] for service in workers)


def test_services_refer_to_what_the_file_declares(document: dict[str, Any]) -> None:
    for name, service in document["services"].items():
        assert service.get("depends_on", {}).keys() <= document["services"].keys(), name
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in document["volumes"], (name, volume)
    for service in _own(document["services"]).values():
        assert service["depends_on"]["valkey"]["condition"] == "service_healthy"
        assert service["environment"]["PALLAS_DATA_DIR"] == service["volumes"][0].split(":")[1]


def test_redis_of_compose_is_durable_and_never_evicts(document: dict[str, Any]) -> None:
    valkey = document["services"]["valkey"]
    words = valkey["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert valkey["image"].startswith("valkey/valkey:")
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory-policy"] == "noeviction"
    assert valkey["volumes"]


def test_image_runs_unprivileged_and_gets_signals_itself(dockerfile: list[str]) -> None:
    final = dockerfile[max(place for place, line in enumerate(dockerfile) if line.startswith("FROM ")) :]
    words = dict(line.split(" ", 1) for line in final if not line.startswith(("RUN", "COPY")))
    assert words["FROM"].startswith("python:3.1")
    assert words["USER"] not in {"root", "0"}
    assert json.loads(words["ENTRYPOINT"]) == ["pallas"]
    assert json.loads(words["CMD"]) == ["hub"]
    assert "/healthz" in words["HEALTHCHECK"]
    assert words["STOPSIGNAL"] == "SIGTERM"


def test_health_check_of_the_image_is_a_program_that_runs(dockerfile: list[str]) -> None:
    check = next(line for line in dockerfile if line.startswith("HEALTHCHECK"))
    command = json.loads(check[check.index("[") :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")


def test_builder_gets_everything_the_wheel_is_built_from(dockerfile: list[str]) -> None:
    del dockerfile
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    named = set(re.findall(r'"(README\.md|LICENSE|NOTICE)"', (ROOT / "pyproject.toml").read_text()))
    assert {"pallas", "shard", "federate", "webui", "pyproject.toml"} | named <= kept


async def test_commands_of_compose_become_ready_and_stop_as_plain_processes(
    document: dict[str, Any], redis_url: str, tmp_path: Path
) -> None:
    planned = _own(compose.services(document, TOKENS, "second"))
    # Each deployment asks for one block of ports: its hub's, then its workers'.
    blocks = {"first": free_ports(3), "second": free_ports(3)}
    with ExitStack() as stack:
        running: dict[str, tuple[PallasProcess, int]] = {}
        for name, service in planned.items():
            side = "second" if name.startswith("second-") else "first"
            service["environment"] = _here(service, redis_url, tmp_path / side, blocks[side])
            process = PallasProcess(service["command"], service["environment"], tmp_path / name, name)
            running[name] = (stack.enter_context(process), _port(service))
        async with httpx.AsyncClient(timeout=2, trust_env=False) as client:
            for process, port in running.values():
                await wait_until(partial(_ready, client, process, port), 20, saying=f"{process.name} is ready")
        for process, _ in reversed(running.values()):
            assert process.terminate() == 0, process.output()


def _own(services: Mapping[str, Any]) -> dict[str, Any]:
    """The services that run our image."""
    return {name: service for name, service in services.items() if "build" in service}


def _prefix(service: Mapping[str, Any]) -> str:
    return str(service["environment"]["PALLAS_REDIS_PREFIX"])


def _volumes(service: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(service["volumes"])


def _port(service: Mapping[str, Any]) -> int:
    """Where its process listens: the hub's port, or the workers' base and the shard id."""
    environment, command = service["environment"], service["command"]
    if command[0] == "hub":
        return int(environment["PALLAS_HUB_PORT"])
    return int(environment["PALLAS_WORKER_PORT"]) + int(command[command.index("--shard-id") + 1])


def _here(service: Mapping[str, Any], redis_url: str, data: Path, first_port: int) -> dict[str, str]:
    """The service's environment with the container's surroundings replaced by this machine's."""
    environment = {name: str(value) for name, value in service["environment"].items()}
    assert REDIS_HOST in environment["PALLAS_REDIS_URL"]
    environment["PALLAS_REDIS_URL"] = environment["PALLAS_REDIS_URL"].replace(REDIS_HOST, redis_url.split("/")[2])
    environment["PALLAS_DATA_DIR"] = str(data)
    environment["PALLAS_HOST"] = "127.0.0.1"
    environment["PALLAS_HUB_PORT"] = str(first_port)
    environment["PALLAS_WORKER_PORT"] = str(first_port + 1)
    return environment


async def _ready(client: httpx.AsyncClient, process: PallasProcess, port: int) -> bool:
    assert process.exit_code is None, f"{process.name} ended with {process.exit_code}:\n{process.output()}"
    try:
        answer = await client.get(f"http://127.0.0.1:{port}/readyz")
    except httpx.TransportError:
        return False
    return answer.status_code == 200
