"""Records of locations and targets."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from ..kernel import limits
from ..kernel.records import Record

REFERENCE_PREFIX = "secret:"

CaseRule = Literal["lower", "upper", "preserve"]
Warehouse = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./@:-]{1,200}$")]


def _own_name(name: str) -> str:
    if name.upper().startswith("TIDEMILL_"):
        raise ValueError("names that begin with TIDEMILL_ are set by the worker itself; use another name")
    return name


def _value(value: str) -> str:
    if "\x00" in value:
        raise ValueError("an environment variable cannot hold a NUL character")
    if value == REFERENCE_PREFIX:
        raise ValueError("name the secret after 'secret:'")
    return value


VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$"), AfterValidator(_own_name)]
# Either the value itself or ``secret:REF``, a reference that the worker resolves.
VariableValue = Annotated[str, StringConstraints(max_length=limits.TEXT_FIELD_CHARACTERS), AfterValidator(_value)]


class TargetSettings(Record):
    """``PUT /admin/locations/{location}/targets/{target}``: the whole settings, not a change of some.

    ``warehouse`` names the database that write claims are taken on (by default ``location/target``; targets that
    share a database share its name). ``settle_seconds`` is how long the warehouse may keep working after its client
    is gone (by default 0 for a single writer's file, else 900). ``environment`` is what the runner's child gets.
    """

    warehouse: Warehouse | None = None
    settle_seconds: Annotated[int, Field(ge=0, le=limits.SETTLE_MAX_SECONDS)] | None = None
    single_writer: bool = False
    case_rule: CaseRule = "lower"
    environment: dict[VariableName, VariableValue] = Field(
        default_factory=dict, max_length=limits.ENVIRONMENT_VARIABLES
    )


class TargetView(Record):
    """A target with its settings as they apply."""

    location: str
    target: str
    warehouse: str
    settle_seconds: int
    single_writer: bool
    case_rule: CaseRule
    environment: dict[str, str]


class LocationView(Record):
    """A location and its targets, by name."""

    location: str
    disabled: bool
    targets: tuple[TargetView, ...] = ()
