"""The reference page and the command line say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from chalicelib.cli.entry import application
from chalicelib.cli.options import CommonOptions

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
HOW_TO = (Path(__file__).parents[2] / "docs" / "how-to" / "publish-from-ci.md").read_text(encoding="utf-8")


def walk(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command with its whole name."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from walk(child, f"{path} {name}")


COMMANDS = dict(walk(typer.main.get_command(application()), "tidemill"))
COMMON = {"--json", "--json-output", "--server", "--token-file", "--location", "--target", "--timeout"}


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("--")}


def test_every_command_is_on_the_page_and_nothing_else() -> None:
    written = re.findall(r"^\| `(tidemill[ a-z-]*?)(?= --| \[|`| [A-Z])", PAGE, re.MULTILINE)
    assert set(written) == set(COMMANDS)


def test_every_option_of_a_command_is_on_the_page() -> None:
    missing = {
        f"{path} {option}"
        for path, command in COMMANDS.items()
        for option in options_of(command) - COMMON - {"--help", "--worker"}
        if f"{option}" not in PAGE
    }
    assert missing == set()


@pytest.mark.parametrize("path", sorted(COMMANDS))
def test_every_command_takes_the_common_options_and_says_what_it_does(path: str) -> None:
    command = COMMANDS[path]
    assert options_of(command) >= COMMON
    assert command.help
    assert command.help.partition("\n")[0].endswith(".")


def test_the_common_options_are_the_documented_ones() -> None:
    assert {f"--{name.replace('_', '-')}" for name in CommonOptions.__dataclass_fields__} == COMMON
    assert all(f"`{option}" in PAGE for option in COMMON)


def test_the_how_to_uses_commands_and_options_that_exist() -> None:
    lines = re.findall(r"^tidemill .*$", HOW_TO, re.MULTILINE)
    assert len(lines) >= 4
    for line in lines:
        path = max((one for one in COMMANDS if line.startswith(one)), key=len)
        assert set(re.findall(r"--[a-z-]+", line)) <= options_of(COMMANDS[path]), line
