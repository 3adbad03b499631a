"""How a job behaves around its build: retries, pools, what it writes, and the inputs of its runs."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from .base import Flag, Key, Many, Positive, Record, Text, Texts, Whole

RetryOn = Literal["launch_failed", "lost", "failed"]
InputType = Literal["text", "integer", "number", "boolean", "date", "datetime", "choice"]
OptionName = Literal["full_refresh", "select", "start", "end"]

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTIONS: tuple[str, ...] = ("full_refresh", "select", "start", "end")
_CURSORS: tuple[str, ...] = ("start", "end")


class Retry(Record):
    """When and how often a run that ended badly is queued again. Waits are seconds."""

    max: Annotated[Positive, Field(le=20)] = 2
    backoff: Annotated[Whole, Field(ge=0, le=86_400)] = 60
    factor: Annotated[float, Field(ge=1, le=10)] = 2.0
    max_backoff: Annotated[Whole, Field(ge=0, le=86_400)] = 3_600
    on: Annotated[Many[RetryOn], Field(min_length=1)] = ("launch_failed",)


class Pool(Record):
    """A weighted share of a named pool."""

    name: Key
    weight: Positive = 1


class Writes(Record):
    """The relations of the resolved nodes, and others that hooks or packages write."""

    compiled: Flag = True
    also: Texts = ()


def _stored(value: object) -> object:
    """Dates and instants in the form in which they travel."""
    return value.isoformat() if isinstance(value, date | datetime) else value


class Input(Record):
    """One value that a run takes.

    ``maps_to`` says where the value goes: ``"var"`` or ``"var:NAME"`` (a variable of the tool), ``"env"`` or
    ``"env:NAME"`` (an environment variable; the input's name in capitals), ``"option:full_refresh"``,
    ``"option:select"``, ``"option:start"``, ``"option:end"``, or ``"cursor:start"`` / ``"cursor:end"`` (typed
    cursor of SQLBuild).
    """

    type: InputType = "text"
    default: Annotated[JsonValue, BeforeValidator(_stored)] = None
    default_from: Literal["scheduled_for", "previous_scheduled_for"] | None = None
    required: Flag = False
    maps_to: Text = "var"
    choices: Texts = ()
    description: str = ""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.type == "choice") != bool(self.choices):
            raise ValueError('choices: give them with type="choice", and only there')
        if self.default_from is not None and self.type not in {"date", "datetime", "text"}:
            raise ValueError("default_from: an occurrence fits the types datetime, date and text")
        _check_mapping(self.maps_to, self.type)
        return self


def _check_mapping(maps_to: str, kind: InputType) -> None:
    place, _, name = maps_to.partition(":")
    if place == "option" and name in _OPTIONS:
        wanted = "boolean" if name == "full_refresh" else None
        if wanted is not None and kind != wanted:
            raise ValueError("maps_to: option:full_refresh needs type='boolean'")
        return
    if place == "cursor" and name in _CURSORS:
        if kind not in {"datetime", "date", "integer"}:
            raise ValueError("maps_to: a cursor needs the type datetime, date or integer")
        return
    if place == "var" and (name or ":" not in maps_to):
        return
    if place == "env" and (_ENVIRONMENT_NAME.fullmatch(name) or ":" not in maps_to):
        return
    raise ValueError(
        "maps_to: use var, var:NAME, env, env:NAME, option:full_refresh, option:select, option:start, option:end, "
        "cursor:start or cursor:end"
    )
