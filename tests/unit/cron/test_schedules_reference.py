"""What docs/reference/schedules.md says is true: its tables are read and tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from chalicelib.cron import MACROS, next_after, validate
from chalicelib.kernel.errors import InvalidSchedule
from tests.unit.cron.cron_oracle import at

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "schedules.md").read_text()
NOW = at("2026-01-01T00:00Z")


def rows(first_heading: str) -> list[list[str]]:
    """The cells of the table whose first column has that heading, without their back quotes."""
    _, _, table = PAGE.partition(f"| {first_heading} |")
    lines = table.split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [[cell.strip(" ").strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows("Expression | Zone"), ids=" ".join)
def test_the_worked_examples(row: list[str]) -> None:
    cron, timezone, after, occurrences = row
    instant = at(after)
    for text in occurrences.split(", "):
        due = next_after(cron, timezone, instant)
        assert due == at(text)
        instant = due


@pytest.mark.parametrize("row", rows("Code"), ids=" ".join)
def test_the_errors(row: list[str]) -> None:
    code, cron, timezone, field, _ = row
    with pytest.raises(InvalidSchedule) as caught:
        validate(cron, timezone, after=NOW)
    assert [(problem.code, problem.field) for problem in caught.value.fields] == [(code, field)]


def test_the_macros() -> None:
    listed = {name.strip("` "): expression for names, expression in rows("Macro") for name in names.split(",")}
    assert listed == MACROS


@pytest.mark.parametrize(
    ("cron", "days"),
    [
        ("30 0 1 * 1", [1, 8, 15, 22, 29]),
        ("0 9 */2 * 1", [1, 15, 29]),
        ("0 0 */5 * 0-6", [1, 6, 11, 16, 21, 26]),
    ],
)
def test_the_day_rule(cron: str, days: list[int]) -> None:
    assert cron in [row[0] for row in rows("Expression | Due")]
    instant = at("2026-05-31T12:00Z")
    for day in days:
        due = next_after(cron, "UTC", instant)
        assert due is not None
        assert due.day == day
        instant = due
