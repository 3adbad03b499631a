"""``--input NAME=VALUE``, given any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ..kernel.errors import InvalidInputs

Inputs = Annotated[
    list[str] | None, typer.Option("--input", metavar="NAME=VALUE", help="A value for an input; may be repeated.")
]


def named_values(texts: Sequence[str]) -> dict[str, str]:
    """The texts by name. Raises ``InvalidInputs`` for one without a name, and for a name that is given twice."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInputs.of_field("--input", f"write it as NAME=VALUE, not {text!r}")
        if name in values:
            raise InvalidInputs.of_field(f"--input {name}", "is given twice")
        values[name] = value
    return values
