"""Frozen dataclasses from TOML tables and back: types checked, unknown keys answered with the nearest name."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, Union

from bitedge.train.errors import TrainError

Record = TypeVar("Record")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the closest known name, or the list of names when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def read_record(kind: type[Record], table: Mapping[str, Any], where: str = "") -> Record:
    """Build the frozen dataclass `kind` from a table; every message names the full dotted key."""
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            raise TrainError(f"unknown key {_dotted(where, key)!r}: {nearest(key, fields)}")
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in table:
            values[name] = _convert(hints[name], table[name], _dotted(where, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise TrainError(f"key {_dotted(where, name)!r} is missing: expected {_spell(hints[name])}")
    return kind(**values)


def _dotted(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _spell(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(hint)))
    if typing.get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_spell(part) for part in typing.get_args(hint) if part is not types.NoneType)
    if dataclasses.is_dataclass(hint) or typing.get_origin(hint) is dict:
        return "a table"
    return {int: "an integer", float: "a number", str: "a string", bool: "true or false"}.get(hint, str(hint))


def _convert(hint: Any, value: Any, key: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _convert_union(hint, value, key)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return read_record(typing.cast("type[Any]", hint), value, key)
    if origin is Literal and value in typing.get_args(hint):
        return value
    if origin is Literal and isinstance(value, str):
        close = difflib.get_close_matches(value, [str(choice) for choice in typing.get_args(hint)], n=1)
        advice = f"; did you mean {close[0]!r}?" if close else ""
        raise TrainError(f"{key} = {value!r}: expected {_spell(hint)}{advice}")
    if origin is dict and isinstance(value, Mapping):
        return dict(value)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint in (str, bool) and isinstance(value, hint):
        return value
    raise TrainError(f"{key} = {value!r}: expected {_spell(hint)}")


def _convert_union(hint: Any, value: Any, key: str) -> Any:
    parts = [part for part in typing.get_args(hint) if part is not types.NoneType]
    if value is None and types.NoneType in typing.get_args(hint):
        return None
    if isinstance(value, Mapping):
        for part in parts:
            if dataclasses.is_dataclass(part):
                return _convert(part, value, key)
    failures: list[TrainError] = []
    for part in parts:
        if not dataclasses.is_dataclass(part):
            try:
                return _convert(part, value, key)
            except TrainError as error:
                failures.append(error)
    if len(failures) == 1 and len(parts) == 1:
        raise failures[0]
    raise TrainError(f"{key} = {value!r}: expected {_spell(hint)}")


def plain(record: Any) -> dict[str, Any]:
    """Turn a dataclass into nested plain data, fields in order, absent (None) values left out."""
    table: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if dataclasses.is_dataclass(value):
            table[field.name] = plain(value)
        elif value is not None:
            table[field.name] = dict(value) if isinstance(value, Mapping) else value
    return table


def write_toml(table: Mapping[str, Any], where: str = "") -> str:
    """Write nested plain data as TOML: scalars first, then one section per table, always in the same order."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in table.items() if not _is_section(value)]
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in table.items():
        if _is_section(value):
            section = _dotted(where, key)
            text += f"\n[{section}]\n" + write_toml(value, section)
    return text


def _is_section(value: Any) -> bool:
    return isinstance(value, Mapping) and "kind" not in value


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
