"""deploy/ names what there is: commands, settings, metrics, sections of the operator's page, times that fit."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pallas import cli
from pallas.metrics import MeterCollector, Meters, exposition
from pallas.model import Outcome, Reason
from pallas.settings import Settings, describe
from tests.support.tree import ROOT

DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SETTINGS = {info.env: info for info in describe()}
# What Prometheus and its Blackbox exporter know by themselves.
FOREIGN = {"up", "probe_success", "ALERTS"}
# A supervised child is killed this long after its own patience ended; then the Valkey has its own.
SUPERVISOR_S, VALKEY_S, GOODBYE_S = 5 + 5, 10 + 5, 1.5 + 4

Unit = dict[str, dict[str, list[str]]]


def unit_of(path: Path) -> Unit:
    """Sections, keys, and every value of a key in its order; a line that is neither is a mistake."""
    sections: Unit = {}
    section: dict[str, list[str]] | None = None
    for line in path.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if header := re.fullmatch(r"\[(Unit|Service|Install)\]", line):
            assert header[1] not in sections, f"{path.name} has [{header[1]}] twice"
            section = sections.setdefault(header[1], defaultdict(list))
            continue
        given = re.fullmatch(r"([A-Z][A-Za-z]+)=(.*)", line)
        assert given, f"{path.name}: {line!r} is no line of a unit"
        assert section is not None
        section[given[1]].append(given[2])
    return {name: dict(keys) for name, keys in sections.items()}


def env_names() -> dict[str, str]:
    """What the settings file of the units gives, and what it gives once its comments are taken away."""
    text = (DEPLOY / "systemd/pallas.env").read_text("utf-8")
    return dict(re.findall(r"^#?([A-Z_]+)=(.*)$", text, re.MULTILINE))


@pytest.fixture(params=UNITS, ids=lambda path: path.name)
def unit(request: pytest.FixtureRequest) -> tuple[str, Unit]:
    return request.param.name, unit_of(request.param)


def test_there_is_a_unit_for_each_shape() -> None:
    assert [path.name for path in UNITS] == ["pallas-hub.service", "pallas-worker@.service", "pallas.service"]


def test_a_unit_starts_a_command_with_options_that_there_are(unit: tuple[str, Unit]) -> None:
    (line,) = unit[1]["Service"]["ExecStart"]
    program, name, *words = line.split()
    assert program.endswith("/.venv/bin/pallas")
    command = typer.main.get_group(cli.cli).commands[name]
    known = {flag for param in command.params for flag in param.opts}
    assert {word for word in words if word.startswith("-")} <= known
    variables = set(re.findall(r"\$\{(\w+)\}", line))
    given = {each.partition("=")[0] for each in unit[1]["Service"].get("Environment", [])}
    assert variables == given
    assert not {each for each in given if each.startswith("PALLAS_")}, "settings stand in the one file of all commands"


def test_a_worker_is_named_by_its_shard_id_and_waits_for_its_lease() -> None:
    (line,) = unit_of(DEPLOY / "systemd/pallas-worker@.service")["Service"]["ExecStart"]
    assert line.endswith(" worker --shard-id %i --wait")


def test_a_unit_reads_the_file_that_commands_in_its_folder_read(unit: tuple[str, Unit]) -> None:
    service = unit[1]["Service"]
    assert service["EnvironmentFile"] == [f"{service['WorkingDirectory'][0]}/.env"]


def test_settings_of_the_units_exist_and_their_data_folder_is_the_one_they_may_write(unit: tuple[str, Unit]) -> None:
    given = env_names()
    assert given.keys() <= SETTINGS.keys()
    (folder,) = unit[1]["Service"]["StateDirectory"]
    assert given["PALLAS_DATA_DIR"] == f"/var/lib/{folder}"


def test_the_settings_file_holds_no_secret_that_two_deployments_could_share() -> None:
    given = env_names()
    assert given["PALLAS_ONEBOT_TOKEN"] == given["PALLAS_HUB_TOKEN"] == given["PALLAS_DEPLOYMENT_ID"] == ""


def test_every_setting_that_a_file_names_exists() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    named = {
        (path.name, name) for path in files for name in re.findall(r"\bPALLAS_[A-Z_]*[A-Z]\b", path.read_text("utf-8"))
    }
    assert named
    assert {pair for pair in named if pair[1] not in SETTINGS} == set()


def test_a_unit_gives_its_processes_the_time_to_end_in_order(unit: tuple[str, Unit]) -> None:
    name, sections = unit
    (limit,) = sections["Service"]["TimeoutStopSec"]
    drain_s = float(Settings.model_fields["drain_grace_s"].default)
    needed = drain_s + (SUPERVISOR_S + VALKEY_S if name == "pallas.service" else GOODBYE_S)
    assert float(limit) > needed
    # The others of a unit are the supervisor's business: it stops the workers before their Valkey.
    assert sections["Service"]["KillMode"] == ["mixed"]


def test_a_unit_comes_back_and_takes_its_time(unit: tuple[str, Unit]) -> None:
    service = unit[1]["Service"]
    assert service["Restart"] == ["on-failure"]
    assert service["Type"] == ["exec"]
    assert float(service["RestartSec"][0]) >= 1
    assert float(service["RestartMaxDelaySec"][0]) > float(service["RestartSec"][0])
    assert unit[1]["Unit"]["StartLimitIntervalSec"] == ["0"]


def test_a_worker_that_runs_out_of_memory_does_not_take_the_others_along() -> None:
    assert unit_of(DEPLOY / "systemd/pallas.service")["Service"]["OOMPolicy"] == ["continue"]


def test_a_unit_may_open_a_file_for_each_link(unit: tuple[str, Unit]) -> None:
    assert int(unit[1]["Service"]["LimitNOFILE"][0]) >= 2 * int(Settings.model_fields["max_links"].default)


def test_units_are_locked_in_alike(unit: tuple[str, Unit]) -> None:
    service = unit[1]["Service"]
    assert service["User"] == service["Group"] == ["pallas"]
    for key in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "RestrictSUIDSGID"):
        assert service[key] == ["yes"], key
    assert service["ProtectSystem"] == ["strict"]
    assert service["CapabilityBoundingSet"] == [""]
    assert service["UMask"] == ["0077"]
    locks = re.compile(r"Protect|Private|Restrict[A-Z]|SystemCall|Lock|NoNew|Capability|State|UMask")
    first = unit_of(UNITS[0])["Service"]
    shared = {key: values for key, values in first.items() if locks.match(key)}
    assert {key: values for key, values in service.items() if locks.match(key)} == shared


def rules() -> list[dict[str, Any]]:
    document = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text("utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    shown = json.loads((DEPLOY / "grafana/pallas.json").read_text("utf-8"))
    assert isinstance(shown, dict)
    return shown


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    yield from (variable["definition"] for variable in dashboard()["templating"]["list"] if "definition" in variable)


def metrics_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', '""', expression)
    return set(re.findall(r"\b(?:(?:pallas|process|probe)_\w+|up|ALERTS)\b", bare))


@pytest.fixture(scope="module")
def shown() -> dict[str, set[str]]:
    """Every sample that workers and hub show, with the labels it can have."""
    meters = Meters()
    for counts in (meters.refused, meters.copies, meters.released, meters.orphans):
        counts[Reason.STALE] += 1
    meters.outcomes[Outcome.DEAD, Reason.SENT_UNKNOWN] += 1
    for named in (meters.events, meters.unknown, meters.sends, meters.oddities, meters.suspects, meters.handshakes):
        named["any"] = 1
    hub = CollectorRegistry()
    ProcessCollector(registry=hub)
    found: dict[str, set[str]] = {}
    for text in (exposition(MeterCollector(meters)), generate_latest(hub)):
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_of_alarms_and_dashboard_is_shown(shown: dict[str, set[str]]) -> None:
    named = {name for expression in expressions() for name in metrics_in(expression)}
    assert {name for name in named if name not in shown} == FOREIGN


def test_alarms_and_dashboard_group_and_select_by_labels_that_their_metrics_have(shown: dict[str, set[str]]) -> None:
    for expression in expressions():
        allowed = {"job", "instance", "process", "alertname", "alertstate"}
        allowed |= {label for name in metrics_in(expression) for label in shown.get(name, ())}
        used = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', expression))
        for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
            used |= {label.strip() for label in listed.split(",")}
        assert used <= allowed, expression


def test_reasons_and_outcomes_that_are_asked_for_exist() -> None:
    known = {each.value for each in (*Reason, *Outcome)}
    asked = {
        value
        for expression in expressions()
        for values in re.findall(r'\b(?:reason|outcome)=~?"([^"]+)"', expression)
        for value in values.split("|")
    }
    assert asked
    assert asked <= known


def test_every_worker_metric_is_on_the_dashboard(shown: dict[str, set[str]]) -> None:
    drawn = {name for panel in panels() for target in panel["targets"] for name in metrics_in(target["expr"])}
    assert {name for name in shown if name.startswith("pallas_")} - drawn == {
        "pallas_ingress_to_handler_seconds_count",
        "pallas_ingress_to_handler_seconds_sum",
    }


def test_every_alarm_says_how_grave_it_is_what_it_means_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names) > 10
    for rule in rules():
        assert re.fullmatch(r"Pallas[A-Z]\w+", rule["alert"])
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert re.fullmatch(r"\d+[sm]", rule.get("for", "0s")), rule["alert"]
        said = rule["annotations"]
        assert said.keys() == {"summary", "description", "action", "runbook"}, rule["alert"]
        assert all(said.values()), rule["alert"]


def test_what_an_alarm_says_names_only_labels_that_it_keeps() -> None:
    for rule in rules():
        kept = [
            {label.strip() for label in listed.split(",")}
            for listed in re.findall(r"\b(?:sum|max) by \(([^)]*)\)", rule["expr"])
        ]
        labels = kept[0] if kept else {"job", "instance"}
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert named <= labels, rule["alert"]


def test_every_alarm_points_to_a_section_that_exists() -> None:
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, rule["alert"]


def test_commands_that_an_alarm_tells_to_run_exist() -> None:
    commands = typer.main.get_group(cli.cli).commands
    told = {word for rule in rules() for word in re.findall(r"`pallas (\w+)", " ".join(rule["annotations"].values()))}
    assert told
    assert told <= commands.keys()


def test_alarms_are_those_of_the_operators_page() -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    section = re.search(r"^## Watch\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    assert section
    listed = set(re.findall(r"^\| `(pallas_\w+)`", section[1], re.MULTILINE))
    alarmed = {name for rule in rules() for name in metrics_in(rule["expr"]) if name not in FOREIGN}
    assert listed == alarmed


def test_jobs_that_alarms_know_are_those_that_are_collected() -> None:
    document = yaml.safe_load((DEPLOY / "prometheus/scrape.yml").read_text("utf-8"))
    assert document["rule_files"] == ["rules.yml"]
    jobs = {job["job_name"]: job for job in document["scrape_configs"]}
    patterns = {job for expression in expressions() for job in re.findall(r'job=~"([^$"]+)"', expression)}
    assert patterns
    for pattern in patterns:
        assert any(re.fullmatch(pattern, name) for name in jobs), pattern
    assert jobs["pallas-hub"]["authorization"]["type"] == "Bearer"
    processes = {each["labels"]["process"] for each in jobs["pallas-ready"]["static_configs"]}
    assert processes == {process for rule in rules() for process in re.findall(r'process="(\w+)"', rule["expr"])}
    ports = {
        name: [int(target.rpartition(":")[2]) for each in jobs[name]["static_configs"] for target in each["targets"]]
        for name in ("pallas-hub", "pallas-workers")
    }
    first = int(Settings.model_fields["worker_port"].default)
    assert ports == {"pallas-hub": [Settings.model_fields["hub_port"].default], "pallas-workers": [first, first + 1]}


def test_dashboard_asks_the_source_that_is_chosen_and_no_other() -> None:
    board = dashboard()
    variables = {each["name"]: each for each in board["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    asked = [*panels(), *board["annotations"]["list"], variables["job"], variables["instance"]]
    asked += [target for panel in panels() for target in panel["targets"]]
    assert {each["datasource"]["uid"] for each in asked} == {"${datasource}"}
    assert "__inputs" not in board
    assert "id" not in board


def test_panels_have_ids_units_and_words_and_do_not_overlap() -> None:
    every = dashboard()["panels"]
    ids = [panel["id"] for panel in every]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in every:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    for panel in panels():
        assert panel["description"], panel["title"]
        unit = panel["options"]["yAxis"] if panel["type"] == "heatmap" else panel["fieldConfig"]["defaults"]
        assert unit["unit"], panel["title"]
