"""Tables to checked models: one message per mistake, with the dotted key, what was expected and the nearest name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from bitedge.train.errors import TrainError

Model = TypeVar("Model", bound=BaseModel)


class Record(BaseModel):
    """A frozen table: unknown keys are errors, and a value has its type already."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean X?" for the closest known name, or the list of names when none is close."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(names)}"


def read_model(
    kind: type[Model], table: Mapping[str, Any], models: Mapping[str, type[BaseModel]] | None = None
) -> Model:
    """Build a model from a table; the first mistake is raised as one line.

    `models` are the models of inner tables by key or by the tag of a union, for the nearest name of an unknown key.
    """
    try:
        return kind.model_validate(dict(table))
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    error = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])  # a misspelt name first
    raise TrainError(_describe(dict(error), kind, table, models or {}))


def plain(record: BaseModel) -> dict[str, Any]:
    """Return a model as nested plain data, in the order of its fields; absent (None) values are left out."""
    return record.model_dump(exclude_none=True)


def _describe(
    error: dict[str, Any], kind: type[BaseModel], table: Mapping[str, Any], models: Mapping[str, type[BaseModel]]
) -> str:
    loc = tuple(str(part) for part in error["loc"])
    key = _dotted(loc, table)
    context = error.get("ctx", {})
    if error["type"] == "extra_forbidden":
        known = models.get(loc[-2], kind) if len(loc) > 1 else kind
        if any(loc[-1] in other.model_fields for other in models.values()) and len(loc) > 1:
            return f"{key} has no meaning for {loc[-2]!r}: remove it"
        return f"unknown key {key!r}: {nearest(loc[-1], known.model_fields)}"
    if error["type"] == "missing":
        return f"key {key!r} is missing"
    if error["type"] == "union_tag_not_found":
        return f"key {key + '.' + _discriminator(context)!r} is missing"
    if error["type"] == "union_tag_invalid":
        names = [name.strip(" '") for name in context["expected_tags"].split(",")]
        where = f"{key}.{_discriminator(context)}"
        return f"{where} = {context['tag']!r}: expected one of {', '.join(names)}; {nearest(context['tag'], names)}"
    if error["type"] == "literal_error":
        choices = [choice.strip(" '") for choice in context["expected"].replace(" or ", ",").split(",")]
        close = difflib.get_close_matches(str(error["input"]), choices, n=1)
        advice = f"; did you mean {close[0]!r}?" if close else ""
        return f"{key} = {error['input']!r}: expected one of {', '.join(choices)}{advice}"
    if error["type"] in ("value_error", "assertion_error"):
        return str(context.get("error", error["msg"]))
    return f"{key} = {error['input']!r}: {_spell(error)}"


def _discriminator(context: Mapping[str, Any]) -> str:
    """The field that chooses a member of a union; schedules are told from numbers by a function."""
    name = str(context["discriminator"]).strip("'")
    return "kind" if name.endswith("()") else name


def _spell(error: Mapping[str, Any]) -> str:
    """What was expected, in the words of a TOML file."""
    context = error.get("ctx", {})
    words = {
        "int_type": "expected an integer",
        "float_type": "expected a number",
        "string_type": "expected a string",
        "bool_type": "expected true or false",
        "finite_number": "expected a finite number",
        "dict_type": "expected a table",
        "model_type": "expected a table",
        "model_attributes_type": "expected a table",
        "greater_than_equal": f"expected {context.get('ge')} or more",
        "greater_than": f"expected more than {context.get('gt')}",
        "less_than_equal": f"expected {context.get('le')} or less",
        "less_than": f"expected less than {context.get('lt')}",
    }
    return words.get(error["type"], str(error["msg"]))


def _dotted(loc: tuple[str, ...], table: Mapping[str, Any]) -> str:
    """The key as the file spells it: the tags of unions, which pydantic adds, are left out."""
    keys: list[str] = []
    inner: Any = table
    for position, part in enumerate(loc):
        if isinstance(inner, Mapping) and part in inner:
            inner = inner[part]
        elif position < len(loc) - 1 or not isinstance(inner, Mapping):
            continue
        keys.append(part)
    return ".".join(keys)
