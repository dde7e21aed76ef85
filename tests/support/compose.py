"""Reads compose.yaml as Compose would: merge keys, profiles, and `${NAME}` replaced from a mapping."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:-|:\?)(?P<rest>[^}]*))?\}")


class MissingVariableError(KeyError):
    """A `${NAME:?…}` has no value."""


def raw(path: Path) -> dict[str, Any]:
    """The file with its merge keys resolved and its variables as written."""
    document = yaml.safe_load(path.read_text("utf-8"))
    assert isinstance(document, dict)
    return document


def services(document: Mapping[str, Any], variables: Mapping[str, str], profile: str | None = None) -> dict[str, Any]:
    """The services that `docker compose [--profile P] up` starts, variables replaced."""
    return {
        name: interpolated(service, variables)
        for name, service in document["services"].items()
        if "profiles" not in service or profile in service["profiles"]
    }


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """`value` with each variable replaced. Raises MissingVariableError for a required one."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, variables), value)
    if isinstance(value, dict):
        return {key: interpolated(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [interpolated(item, variables) for item in value]
    return value


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    value = variables.get(found["name"], "")
    if value or found["how"] is None:
        return value
    if found["how"] == ":-":
        return found["rest"]
    raise MissingVariableError(f"{found['name']}: {found['rest']}")
