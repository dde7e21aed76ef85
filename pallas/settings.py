"""The settings of this process; the only module that reads the environment.

Sources, the first one that has a value winning: arguments, the process environment, `.env`, `pallas.toml`, the
default. Unknown names are refused, and every bad setting is named at once, with where it came from and what would be
right, so that one restart is enough. Secrets never appear in a text made here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pallas.errors import SettingsError
from pallas.redact import redact_text
from pallas.settings_federate import FederateSettings, replaced
from pallas.settings_fields import SettingInfo, env_name
from pallas.settings_rules import ConflictError
from pallas.settings_sources import (
    DOTENV_NAME,
    TOML_NAME,
    Given,
    Layer,
    LayerSource,
    Problem,
    from_arguments,
    from_dotenv,
    from_environ,
    from_toml,
)
from pallas.settings_table import INFO, Settings

__all__ = ["FederateSettings", "SettingInfo", "Settings", "describe", "load"]

_LONGEST_SHOWN = 80


def describe() -> list[SettingInfo]:
    """Every setting with its range, default, what it does and what it costs; those of the pool last."""
    pool = FederateSettings.model_fields
    return [info for info in INFO.values() if info.key not in pool] + [INFO[key] for key in pool]


def load(*, environ: Mapping[str, str] | None = None, cwd: Path | None = None, **arguments: Any) -> Settings:
    """The settings of this process; an argument that is `None` counts as not given.

    `environ` and `cwd` replace the process's own. Raises SettingsError naming every setting that cannot be used.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    known = frozenset(INFO)
    layers = [
        from_arguments(arguments, known),
        from_environ(environ, known),
        from_dotenv(cwd / DOTENV_NAME, known),
    ]
    named = next((layer.given["config"].value for layer in layers if "config" in layer.given), None)
    config = cwd / Path(str(named or TOML_NAME)).expanduser()
    layers.append(from_toml(config, known, required=named is not None))

    given = {key: each for layer in reversed(layers) for key, each in layer.given.items()}
    settings, problems = _build(layers, given)
    problems = [problem for layer in layers for problem in layer.problems] + problems
    if settings is None or problems:
        raise SettingsError(_complaint(problems))
    notes = [note for layer in layers for note in layer.warnings]
    notes += [_about(key, text, given) for key, text in replaced({key: each.value for key, each in given.items()})]
    return settings.loaded(
        data_dir=(cwd / settings.data_dir.expanduser()).absolute(),
        config=config if config.is_file() else None,
        origins={key: each.where for key, each in given.items()},
        warnings=tuple(note.line() for note in notes),
    )


def _build(layers: list[Layer], given: Mapping[str, Given]) -> tuple[Settings | None, list[Problem]]:
    make: Any = Settings
    problems: list[Problem] = []
    bad: set[str] = set()
    while True:
        # Without the bad ones the others are checked against each other too.
        sources = tuple(LayerSource(Settings, layer, leave_out=bad) for layer in layers)
        try:
            return make(_build_sources=(sources, {})), problems
        except ValidationError as error:
            details = error.errors(include_url=False)
        faults = {str(detail["loc"][0]): detail for detail in details if detail["loc"]}
        if not faults:
            found = [each for detail in details for each in _conflicts_in(detail) if not bad & set(each.keys)]
            return None, problems + [_about(each.keys[0], each.text, given, *each.keys[1:]) for each in found]
        problems += [_about(key, _fault(key, detail, given), given) for key, detail in faults.items()]
        bad |= faults.keys()


def _conflicts_in(detail: Mapping[str, Any]) -> list[Any]:
    error = detail.get("ctx", {}).get("error")
    return error.found if isinstance(error, ConflictError) else []


def _fault(key: str, detail: Mapping[str, Any], given: Mapping[str, Given]) -> str:
    error = detail.get("ctx", {}).get("error")
    rule = str(error) if isinstance(error, ValueError) else f"must be {INFO[key].allowed}"
    return f"= {_shown_given(key, given[key].value)}: {rule}" if key in given else rule


def _shown_given(key: str, value: object) -> str:
    if INFO[key].secret:
        return "(hidden)"
    text = redact_text(repr(value) if isinstance(value, str) else str(value))
    text = text.encode("unicode_escape", "backslashreplace").decode("ascii") if not text.isprintable() else text
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _about(key: str, text: str, given: Mapping[str, Given], *others: str) -> Problem:
    """A problem with one setting, or with it and `others`, under the name its owner wrote."""
    name = env_name(key)
    places = [given[each].where for each in (key, *others) if each in given]
    return Problem(name, text, ", ".join(dict.fromkeys(places)))


def _complaint(problems: list[Problem]) -> str:
    lines = [problem.line() for problem in problems]
    if len(lines) == 1:
        return lines[0]
    return f"{len(lines)} settings cannot be used:\n" + "\n".join(f"  {line}" for line in lines)
