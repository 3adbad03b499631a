"""Inputs of a run: resolve them once at queueing (S27), and map them to what a runner passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from pydantic import JsonValue

from ..authoring.policies import Input, InputType
from ..kernel.clock import instant_text, parse_instant
from ..kernel.errors import FieldError, InvalidDeclaration, InvalidInputs
from ..kernel.limits import TEXT_FIELD_CHARACTERS
from .bundle import JobDefinition

_TRUE, _FALSE = frozenset({"true", "yes", "1"}), frozenset({"false", "no", "0"})


def resolve_inputs(
    definition: JobDefinition,
    given: Mapping[str, JsonValue],
    scheduled_for: datetime | None = None,
    previous_scheduled_for: datetime | None = None,
) -> dict[str, JsonValue]:
    """The values that a run is pinned to: given, else from the occurrence, else the default; absent ones are left out.

    Instants become ``YYYY-MM-DDTHH:MM:SS.ffffffZ``; a date made from an occurrence is the date in the zone of the
    datetime that is passed, so pass it in the schedule's zone. Text such as ``"5"`` is read as the declared type, since
    a command line has nothing else. Raises ``InvalidInputs`` naming every wrong field.
    """
    wrong = [_unknown(name, definition) for name in sorted(set(given) - set(definition.inputs))]
    occurrence = {"scheduled_for": scheduled_for, "previous_scheduled_for": previous_scheduled_for}
    values: dict[str, JsonValue] = {}
    for name, declared in sorted(definition.inputs.items()):
        try:
            value = _resolve(declared, given.get(name), occurrence)
        except ValueError as problem:
            wrong.append(FieldError(f"inputs.{name}", InvalidInputs.code, str(problem)))
            continue
        if value is not None:
            values[name] = value
    if wrong:
        raise InvalidInputs("; ".join(f"{one.field}: {one.message}" for one in wrong), fields=wrong)
    _check_selection(definition, values)
    return values


def check_defaults(definition: JobDefinition) -> None:
    """Refuse a default that its own input would refuse. Raises ``InvalidDeclaration``."""
    for name, declared in definition.inputs.items():
        if declared.default is None:
            continue
        try:
            _typed(declared, declared.default)
        except ValueError as problem:
            raise InvalidDeclaration.of_field(f"{definition.job}.inputs.{name}.default", str(problem)) from None


def _unknown(name: str, definition: JobDefinition) -> FieldError:
    known = ", ".join(sorted(definition.inputs)) or "none"
    return FieldError(f"inputs.{name}", InvalidInputs.code, f"{definition.job} takes no such input; it takes: {known}")


def _resolve(declared: Input, given: JsonValue, occurrence: Mapping[str, datetime | None]) -> JsonValue:
    if given is not None:
        return _typed(declared, given)
    if declared.default_from is not None:
        moment = occurrence[declared.default_from]
        if moment is not None:
            return _of_occurrence(declared.type, moment)
    if declared.default is not None:
        return _typed(declared, declared.default)
    if declared.required:
        raise ValueError("is required; give a value")
    return None


def _of_occurrence(kind: InputType, moment: datetime) -> str:
    return moment.date().isoformat() if kind == "date" else instant_text(moment)


def _typed(declared: Input, value: JsonValue) -> JsonValue:
    if declared.type == "choice":
        if value not in declared.choices:
            raise ValueError(f"use one of {', '.join(declared.choices)}")
        return value
    typed: JsonValue = _READERS[declared.type](value)
    return typed


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")  # noqa: TRY004 - one error class for values
    if len(value) > TEXT_FIELD_CHARACTERS:
        raise ValueError(f"at most {TEXT_FIELD_CHARACTERS} characters")
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("give a whole number")  # noqa: TRY004 - one error class for values
    if isinstance(value, int):
        return value
    try:
        return int(value) if isinstance(value, str) else _refuse("give a whole number")
    except ValueError:
        raise ValueError("give a whole number") from None


def _number(value: Any) -> float | int:
    if isinstance(value, int | float) and not isinstance(value, bool):
        number: float | int = value
    else:
        try:
            number = float(value) if isinstance(value, str) else _refuse("")
        except ValueError:
            raise ValueError("give a number") from None
    if number != number or number in {float("inf"), float("-inf")}:  # noqa: PLR0124 - NaN differs from itself
        raise ValueError("give a finite number")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text not in _TRUE | _FALSE:
        raise ValueError("give true or false")
    return text in _TRUE


def _date(value: Any) -> str:
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        raise ValueError("give a date such as 2026-01-31") from None


def _datetime(value: Any) -> str:
    try:
        return instant_text(parse_instant(value).astimezone(UTC))
    except (TypeError, ValueError):
        raise ValueError("give an instant with its zone, such as 2026-01-31T06:15:00Z") from None


def _refuse(message: str) -> Any:
    raise ValueError(message)


_READERS: Mapping[str, Any] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
    "datetime": _datetime,
}


@dataclass(frozen=True, slots=True)
class AppliedInputs:
    """Where the values go: variables of the tool, the environment, options of the build, and typed cursors.

    ``options`` has any of ``full_refresh`` (bool), ``start`` and ``end`` (text); ``cursors`` maps ``start`` and ``end``
    to ``("ts" | "int", text)``. A narrowed selection is no part of it: it is fixed with the run (``selection_of``).
    """

    vars: Mapping[str, JsonValue] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, JsonValue] = field(default_factory=dict)
    cursors: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def apply_inputs(definition: JobDefinition, values: Mapping[str, JsonValue]) -> AppliedInputs:
    """Map resolved values to what a runner passes on; an absent value changes nothing."""
    variables: dict[str, JsonValue] = {}
    environment: dict[str, str] = {}
    options: dict[str, JsonValue] = {}
    cursors: dict[str, tuple[str, str]] = {}
    for name, value in sorted(values.items()):
        declared = definition.inputs[name]
        place, _, inner = declared.maps_to.partition(":")
        if place == "var":
            variables[inner or name] = value
        elif place == "env":
            environment[inner or _environment_name(name)] = _as_text(value)
        elif place == "cursor":
            cursors[inner] = ("int" if declared.type == "integer" else "ts", _as_text(value))
        elif inner != "select":
            options[inner] = value if inner == "full_refresh" else _as_text(value)
    return AppliedInputs(variables, environment, options, cursors)


def selection_of(definition: JobDefinition, values: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    """The node ids that an ``option:select`` input takes out of the job, sorted; ``None`` without such a value.

    Names are separated by blanks or commas; a name is a node id or its last part. Raises ``InvalidInputs``.
    """
    for name, value in sorted(values.items()):
        if definition.inputs[name].maps_to == "option:select":
            return _named_nodes(name, _as_text(value).replace(",", " ").split(), definition.nodes)
    return None


def _named_nodes(name: str, wanted: Sequence[str], nodes: Sequence[str]) -> tuple[str, ...]:
    found: set[str] = set()
    for text in wanted:
        matching = [node for node in nodes if text in {node, node.replace(":", ".").rpartition(".")[2]}]
        if not matching:
            raise InvalidInputs.of_field(f"inputs.{name}", f"{text!r} is no node of the job")
        found.update(matching)
    if not found:
        raise InvalidInputs.of_field(f"inputs.{name}", "names no node")
    return tuple(sorted(found))


def _check_selection(definition: JobDefinition, values: Mapping[str, JsonValue]) -> None:
    selection_of(definition, values)


def _environment_name(name: str) -> str:
    return name.upper().replace("-", "_")


def _as_text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
