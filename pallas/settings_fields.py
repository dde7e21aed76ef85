"""How one setting is declared and how it is described to a person.

A declaration carries its range, what it does and what a higher or lower value costs; error texts, `pallas doctor` and
the settings page are made from it, so that none of them can disagree with the code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, SecretStr
from pydantic.fields import FieldInfo

PREFIX = "PALLAS_"
_UNITS = {"_s": "seconds", "_sec": "seconds", "_ms": "milliseconds", "_bytes": "bytes"}


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting, for people."""

    key: str
    """Name in `pallas.toml`; any underscore may be a table border (`[hub] port`)."""
    env: str
    unit: str
    """Empty where the value has none."""
    allowed: str
    """A noun phrase that completes "must be …"."""
    default: str
    what: str
    cost: str
    secret: bool
    floor: float | None
    """Smallest value outside of tests, where that is above the smallest one that works."""


def setting(
    default: object,
    what: str,
    cost: str,
    *,
    ge: float | None = None,
    le: float | None = None,
    floor: float | None = None,
    allowed: str = "",
    secret: bool = False,
) -> Any:
    """Declare a setting: its default, what it does, what more or less of it costs, its range."""
    extra: dict[str, Any] = {"cost": cost, "floor": floor, "allowed": allowed, "secret": secret}
    return Field(default, ge=ge, le=le, allow_inf_nan=_finite(default), description=what, json_schema_extra=extra)


def _finite(default: object) -> bool | None:
    return False if isinstance(default, float) else None


def env_name(key: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + key.upper()


def describe_model(model: type[BaseModel]) -> list[SettingInfo]:
    """Every setting of `model`, in the order of its declaration."""
    return [_info(key, field) for key, field in model.model_fields.items()]


def _info(key: str, field: FieldInfo) -> SettingInfo:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    floor = extra.get("floor")
    floor_value = float(floor) if isinstance(floor, (int, float)) else None
    unit = next((unit for suffix, unit in _UNITS.items() if key.endswith(suffix)), "")
    return SettingInfo(
        key=key,
        env=env_name(key),
        unit=unit,
        allowed=str(extra.get("allowed") or "") or _allowed(field, unit, floor_value),
        default=_shown_default(field.default),
        what=field.description or "",
        cost=str(extra.get("cost") or ""),
        secret=bool(extra.get("secret")) or SecretStr in get_args(field.annotation),
        floor=floor_value,
    )


def _allowed(field: FieldInfo, unit: str, floor: float | None) -> str:
    kind = field.annotation
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if kind is bool:
        return "true or false"
    kinds = get_args(kind) or (kind,)
    if SecretStr in kinds:
        return "printable ASCII without spaces"
    if get_origin(kind) is tuple:
        return "ids separated by commas, or an array of ids"
    if int not in kinds and float not in kinds:
        return "text"
    noun = ("a number" if float in kinds else "a whole number") + (f" of {unit}" if unit else "")
    low = floor if floor is not None else _bound(field, "ge")
    high = _bound(field, "le")
    if low is not None and high is not None:
        return f"{noun} from {_plain(low)} to {_plain(high)}"
    return f"{noun}, at least {_plain(low)}" if low is not None else noun


def _bound(field: FieldInfo, side: str) -> float | None:
    for rule in field.metadata:
        bound = getattr(rule, side, None)
        if isinstance(bound, (int, float)):
            return bound
    return None


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def _shown_default(default: object) -> str:
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, float):
        return _plain(default)
    if isinstance(default, Path):
        # `Path` drops the `./` that tells a reader it is relative to the working folder.
        return str(default) if default.is_absolute() else f"./{default}"
    return str(default)
