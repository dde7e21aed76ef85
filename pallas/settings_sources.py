"""Where settings come from: arguments, the process environment, `.env`, `pallas.toml`.

Each reader turns its source into `Given` values and `Problem`s and looks at nothing else; the order of precedence is
`pallas.settings.load`'s. An empty variable counts as not set, because compose files write `${NAME:-}`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from dotenv.parser import parse_stream
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from pallas import settings_names
from pallas.settings_fields import PREFIX, env_name

TOML_NAME = "pallas.toml"
DOTENV_NAME = ".env"
_TOO_LARGE = 1 << 20
_ENVIRONMENT_ONLY = "config"
_OF_OUR_TESTS = frozenset({f"{PREFIX}TEST_BROWSER"})
"""How this project's own tests are told what to use; the processes they start inherit it."""


@dataclass(frozen=True, slots=True)
class Given:
    """One value as somebody wrote it."""

    value: Any
    name: str
    """The name as written."""
    where: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a setting cannot be used; `text` continues the name."""

    name: str
    text: str
    where: str

    def line(self) -> str:
        """One line for a person."""
        return f"{self.name} {self.text}" + (f" (from {self.where})" if self.where else "")


@dataclass(slots=True)
class Layer:
    """What one source gives."""

    given: dict[str, Given] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def take(self, key: str, given: Given, known: frozenset[str]) -> None:
        """Sort one value: a setting of ours, one of Pallas-Bot, or neither."""
        if key in known:
            if key in self.given:
                other = self.given[key].name
                text = f"is given twice, also as {other}; keep one of them"
                self.problems.append(Problem(given.name, text, given.where))
            self.given[key] = given
            return
        old = settings_names.retired(given.name) or settings_names.retired(env_name(key))
        if old is not None:
            (self.warnings if old.harmless else self.problems).append(Problem(given.name, old.advice, given.where))
            return
        self.problems.append(Problem(given.name, settings_names.unknown(key, known), given.where))


class LayerSource(PydanticBaseSettingsSource):
    """A layer in the form pydantic-settings merges."""

    def __init__(
        self, settings_cls: type[BaseSettings], layer: Layer, *, leave_out: AbstractSet[str] = frozenset()
    ) -> None:
        super().__init__(settings_cls)
        self._given = {key: given for key, given in layer.given.items() if key not in leave_out}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002
        """The value as written, decoded by the field's own validator."""
        given = self._given.get(field_name)
        return (None if given is None else given.value), field_name, False

    def __call__(self) -> dict[str, Any]:
        return {key: given.value for key, given in self._given.items()}


def from_arguments(arguments: Mapping[str, Any], known: frozenset[str]) -> Layer:
    """Values given by the program; `None` means not given.

    Raises TypeError for a name that is no setting: that is a fault of the caller, not of the operator.
    """
    layer = Layer()
    for key, value in arguments.items():
        if key not in known:
            raise TypeError(f"load() got {key!r}, which is not a setting")
        if value is not None:
            layer.given[key] = Given(value, env_name(key), "the command line")
    return layer


def from_environ(environ: Mapping[str, str], known: frozenset[str]) -> Layer:
    """`PALLAS_*` of a process environment."""
    layer = Layer()
    for name, value in environ.items():
        upper = name.upper()
        if value and upper.startswith(PREFIX) and upper not in _OF_OUR_TESTS:
            layer.take(upper.removeprefix(PREFIX).lower(), Given(value, upper, "the environment"), known)
    return layer


def from_dotenv(path: Path, known: frozenset[str]) -> Layer:
    """`PALLAS_*` of a `.env` file; nothing in it is expanded. A missing file gives nothing."""
    layer = Layer()
    text = _read(path, layer, required=False)
    last: dict[str, Given] = {}
    for line in parse_stream(StringIO(text.removeprefix("\ufeff"))):
        skipped = len(line.original.string) - len(line.original.string.lstrip())
        number = line.original.line + line.original.string[:skipped].count("\n")
        where = f"{path} line {number}"
        if line.error:
            # The line itself is not shown: it may hold a secret.
            layer.problems.append(Problem("a line", "is not NAME=value", where))
        elif line.key is not None and line.value:
            last[line.key.upper()] = Given(line.value, line.key.upper(), where)
    for upper, given in last.items():
        old = settings_names.retired(upper)
        if old is not None and not upper.startswith(PREFIX):
            layer.warnings.append(Problem(upper, old.advice, given.where))
        elif upper.startswith(PREFIX):
            layer.take(upper.removeprefix(PREFIX).lower(), given, known)
    return layer


def from_toml(path: Path, known: frozenset[str], *, required: bool) -> Layer:
    """`pallas.toml`: `hub_port = 1` or `[hub] port = 1`. A missing file is a problem only where it was named."""
    layer = Layer()
    text = _read(path, layer, required=required)
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        layer.problems.append(Problem(str(path), f"is not valid TOML: {_without_source(error)}", ""))
        return layer
    except RecursionError:
        layer.problems.append(Problem(str(path), "is not valid TOML: nested too deep", ""))
        return layer
    for parts, value in _leaves(tree, ()):
        key = "_".join(parts).lower().removeprefix(PREFIX.lower())
        layer.take(key, Given(value, ".".join(parts), str(path)), known - {_ENVIRONMENT_ONLY})
    return layer


def _without_source(error: tomllib.TOMLDecodeError) -> str:
    # The message may quote a key of the file but never a value; one line is enough.
    return str(error).splitlines()[0][:200]


def _leaves(tree: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name), value


def _read(path: Path, layer: Layer, *, required: bool) -> str:
    try:
        if path.stat().st_size > _TOO_LARGE:
            layer.problems.append(Problem(str(path), "is larger than 1 MiB; it is hardly a settings file", ""))
            return ""
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        if required:
            text = "does not exist; PALLAS_CONFIG names it: correct it, or remove it to read ./pallas.toml"
            layer.problems.append(Problem(str(path), text, ""))
    except OSError as error:
        layer.problems.append(Problem(str(path), f"cannot be read: {error.strerror or error}", ""))
    except UnicodeDecodeError:
        layer.problems.append(Problem(str(path), "is not UTF-8 text; save it as UTF-8", ""))
    return ""
