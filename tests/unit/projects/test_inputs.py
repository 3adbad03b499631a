from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from chalicelib.authoring.builds import SqlBuild
from chalicelib.authoring.policies import Input
from chalicelib.kernel.errors import InvalidDeclaration, InvalidInputs
from chalicelib.projects.bundle import JobDefinition
from chalicelib.projects.inputs import apply_inputs, check_defaults, resolve_inputs, selection_of

OCCURRENCE = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)


def job(**inputs: Input) -> JobDefinition:
    return JobDefinition(
        job="orders",
        build=SqlBuild(),
        nodes=("model:orders", "model.shop.lines"),
        relations=(),
        worker="container",
        timeout_seconds=60,
        concurrency=1,
        inputs=inputs,
    )


@pytest.mark.parametrize(
    ("declared", "given", "value"),
    [
        (Input(), "x", "x"),
        (Input(type="integer"), 5, 5),
        (Input(type="integer"), "5", 5),
        (Input(type="number"), "2.5", 2.5),
        (Input(type="number"), 2, 2),
        (Input(type="boolean"), True, True),
        (Input(type="boolean"), "False", False),
        (Input(type="date"), "2026-03-02", "2026-03-02"),
        (Input(type="datetime"), "2026-03-02T01:00:00+01:00", "2026-03-02T00:00:00.000000Z"),
        (Input(type="choice", choices=("a", "b")), "b", "b"),
    ],
)
def test_a_value_is_read_as_its_type(declared: Input, given: Any, value: Any) -> None:
    assert resolve_inputs(job(n=declared), {"n": given}) == {"n": value}


@pytest.mark.parametrize(
    ("declared", "given", "text"),
    [
        (Input(), 5, "give a text"),
        (Input(), "x" * 5_000, "at most 4096 characters"),
        (Input(type="integer"), "five", "give a whole number"),
        (Input(type="integer"), True, "give a whole number"),
        (Input(type="integer"), 2.5, "give a whole number"),
        (Input(type="number"), "nan", "give a finite number"),
        (Input(type="number"), [], "give a number"),
        (Input(type="boolean"), "maybe", "give true or false"),
        (Input(type="date"), "2 March", "give a date such as"),
        (Input(type="datetime"), "2026-03-02T01:00:00", "give an instant with its zone"),
        (Input(type="choice", choices=("a", "b")), "c", "use one of a, b"),
    ],
)
def test_a_value_that_does_not_fit_names_the_field(declared: Input, given: Any, text: str) -> None:
    with pytest.raises(InvalidInputs, match=text) as caught:
        resolve_inputs(job(n=declared), {"n": given})
    assert [field.field for field in caught.value.fields] == ["inputs.n"]


def test_every_wrong_field_is_named_at_once() -> None:
    with pytest.raises(InvalidInputs) as caught:
        resolve_inputs(job(a=Input(required=True), b=Input(type="integer")), {"b": "x", "c": 1})
    assert [field.field for field in caught.value.fields] == ["inputs.c", "inputs.a", "inputs.b"]
    assert "it takes: a, b" in caught.value.detail


def test_a_value_comes_from_the_request_then_the_occurrence_then_the_default() -> None:
    declared = job(day=Input(type="date", default="2026-01-01", default_from="scheduled_for"))
    assert resolve_inputs(declared, {"day": "2026-02-02"}, OCCURRENCE) == {"day": "2026-02-02"}
    assert resolve_inputs(declared, {}, OCCURRENCE) == {"day": "2026-03-02"}
    assert resolve_inputs(declared, {}, OCCURRENCE.astimezone(ZoneInfo("Europe/Berlin"))) == {"day": "2026-03-03"}
    assert resolve_inputs(declared, {}) == {"day": "2026-01-01"}


def test_instants_of_occurrences() -> None:
    declared = job(
        start=Input(type="datetime", default_from="previous_scheduled_for"),
        end=Input(type="datetime", default_from="scheduled_for"),
    )
    assert resolve_inputs(declared, {}, OCCURRENCE) == {"end": "2026-03-02T23:30:00.000000Z"}


def test_a_required_input_may_come_from_the_occurrence_only() -> None:
    declared = job(day=Input(type="date", default_from="scheduled_for", required=True))
    assert resolve_inputs(declared, {}, OCCURRENCE) == {"day": "2026-03-02"}
    with pytest.raises(InvalidInputs, match=r"inputs\.day: is required"):
        resolve_inputs(declared, {})


def test_where_values_go() -> None:
    declared = job(
        mode=Input(),
        region=Input(maps_to="var:shop_region"),
        pause_seconds=Input(type="integer", maps_to="env"),
        flag=Input(type="boolean", maps_to="env:WITH_FLAG"),
        full=Input(type="boolean", maps_to="option:full_refresh"),
        begin=Input(type="date", maps_to="option:start"),
        first=Input(type="integer", maps_to="cursor:start"),
        last=Input(type="datetime", maps_to="cursor:end"),
        only=Input(maps_to="option:select"),
    )
    given: dict[str, Any] = {
        "mode": "daily", "region": "north", "pause_seconds": 3, "flag": True, "full": True, "begin": "2026-03-02",
        "first": 7, "last": "2026-03-02T00:00:00Z", "only": "orders, lines",
    }  # fmt: skip
    values = resolve_inputs(declared, given)
    applied = apply_inputs(declared, values)
    assert applied.vars == {"mode": "daily", "shop_region": "north"}
    assert applied.env == {"PAUSE_SECONDS": "3", "WITH_FLAG": "true"}
    assert applied.options == {"full_refresh": True, "start": "2026-03-02"}
    assert applied.cursors == {"start": ("int", "7"), "end": ("ts", "2026-03-02T00:00:00.000000Z")}
    assert selection_of(declared, values) == ("model.shop.lines", "model:orders")


def test_an_absent_value_changes_nothing() -> None:
    declared = job(mode=Input(), only=Input(maps_to="option:select"))
    applied = apply_inputs(declared, resolve_inputs(declared, {}))
    assert (applied.vars, applied.env, applied.options) == ({}, {}, {})
    assert selection_of(declared, {}) is None


@pytest.mark.parametrize("text", ["customers", " "])
def test_a_selection_outside_the_job_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputs, match=r"inputs\.only"):
        resolve_inputs(job(only=Input(maps_to="option:select")), {"only": text})


def test_a_default_that_does_not_fit_is_a_declaration_error() -> None:
    with pytest.raises(InvalidDeclaration, match=r"orders\.inputs\.n\.default: give a whole number"):
        check_defaults(job(n=Input(type="integer", default="x")))
    check_defaults(job(n=Input(type="integer", default=0)))
