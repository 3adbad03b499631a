"""What all records share: frozen, closed to unknown fields, and field types whose errors say what to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, StrictBool, StringConstraints

from ..kernel.records import KEY_PATTERN, Record

__all__ = [
    "Flag", "Key", "Many", "Positive", "Record", "Selectors", "Text", "Texts", "Variables", "Whole", "WorkerKind",
]  # fmt: skip

WorkerKind = Literal["lambda", "container"]


def _texts(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f'give a list of texts, such as ["{value}"]')  # noqa: TRY004 - pydantic wants ValueError
    return tuple(value) if isinstance(value, list | tuple) else value


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _whole(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("give a whole number")  # noqa: TRY004 - pydantic wants ValueError
    return value


def _key(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("give a text")  # noqa: TRY004 - pydantic wants ValueError
    return value


def _no_options(value: Sequence[str]) -> Sequence[str]:
    for text in value:
        if text.startswith("-"):
            raise ValueError(f"{text!r} would be read as an option of the tool")
    return value


Key = Annotated[str, BeforeValidator(_key), StringConstraints(pattern=KEY_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4_096)]
# Typed as sequences, so that an author may write a list; kept as tuples.
Item = TypeVar("Item")
Many = Annotated[Sequence[Item], BeforeValidator(_tuple), AfterValidator(tuple)]
Texts = Annotated[Sequence[Text], BeforeValidator(_texts), AfterValidator(tuple)]
Selectors = Annotated[Texts, AfterValidator(_no_options)]
Whole = Annotated[int, BeforeValidator(_whole)]
Positive = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Flag = StrictBool
Variables = Mapping[str, JsonValue]
