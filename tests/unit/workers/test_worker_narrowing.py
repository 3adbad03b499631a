"""A run of some nodes of its job: exactly these, whatever the tools would add (10.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chalicelib.authoring.builds import Build, Command, Dbt, SqlBuild
from chalicelib.kernel.canonical import canonical_json, sha256_text
from chalicelib.kernel.errors import Drift
from chalicelib.projects.bundle import Bundle, JobDefinition
from chalicelib.projects.compilation import Compilation
from chalicelib.projects.indexing import GRAPH_DOCUMENT
from chalicelib.workers.narrowing import narrowed, nodes_to_verify
from chalicelib.workers.runners.dbt import DbtRunner
from chalicelib.workers.runners.plan import RunPlan
from chalicelib.workers.runners.sqlbuild import SqlBuildRunner
from tests.snapshots import index_of
from tests.unit.workers.doubles import inputs_of

DETAILS: dict[str, dict[str, Any]] = {
    "model.shop.orders": {"fqn": ["shop", "marts", "orders"], "path": "models/marts/orders.sql"},
    "test.shop.not_null_orders_id.abc": {"fqn": ["shop", "marts", "not_null_orders_id"], "path": "models/marts/m.yml"},
    "unit_test.shop.orders.sums": {"fqn": ["shop", "marts", "orders", "sums"], "path": "models/marts/m.yml"},
    "model.shop.odd": {"fqn": ["shop", "odd"], "path": "models/an odd, name.sql"},
}


def plan_of(build: Build, folder: Path, selection: list[str] | None, **fields: Any) -> RunPlan:
    definition = JobDefinition(
        job="orders", build=build, nodes=("a", "b"), relations=(), worker="container", timeout_seconds=60, concurrency=1
    )
    inputs = inputs_of(definition, selection=selection)
    return RunPlan(inputs, build, folder, Path("/project"), Path("/venv/bin/python"), Path("/project"), **fields)


def compilation() -> Compilation:
    text = canonical_json(DETAILS)
    bundle = Bundle(index_of([], documents={GRAPH_DOCUMENT: text}), {sha256_text(text): text.encode()})
    return Compilation(bundle, Path("/project"), "cafe", "dev", None, False, "cafe/dev", 0, None, ())


def test_a_run_without_a_selection_is_left_as_it_is(tmp_path: Path) -> None:
    plan = plan_of(SqlBuild(select=("tag:x",)), tmp_path, None)
    assert narrowed(plan, compilation()) is plan
    assert tuple(nodes_to_verify(plan.inputs)) == ("a", "b")


def test_only_the_selection_is_verified(tmp_path: Path) -> None:
    assert list(nodes_to_verify(plan_of(SqlBuild(), tmp_path, ["b"]).inputs)) == ["b"]


def test_sqb_builds_these_nodes_and_loads_nothing_for_them(tmp_path: Path) -> None:
    build = SqlBuild(select=("tag:x",), exclude=("c",), load="on", full_refresh=True)
    plan = narrowed(plan_of(build, tmp_path, ["model:a", "seed:b", "udf:f"]), compilation())
    argv = SqlBuildRunner().launch(plan).argv
    assert (tmp_path / "select.txt").read_text() == "a\nseed:b\nf\n"
    assert "--exclude" not in argv
    assert {"--no-load", "--full-refresh"} <= set(argv)
    assert "--load" not in argv


def test_sqb_loads_as_the_job_says_when_a_source_is_selected(tmp_path: Path) -> None:
    plan = narrowed(plan_of(SqlBuild(load="reload"), tmp_path, ["model:a", "source:raw"]), compilation())
    argv = SqlBuildRunner().launch(plan).argv
    assert (tmp_path / "select.txt").read_text() == "a\nsource:raw\n"
    assert "--reload" in argv


def test_dbt_selects_by_full_name_and_file_and_runs_no_test_that_is_not_selected(tmp_path: Path) -> None:
    """A model's full name is also that of a folder beside it; the file tells them apart."""
    build = Dbt(select=("tag:x",), exclude=("c",), selector="nightly")
    plan = plan_of(build, tmp_path, sorted(DETAILS), extra_options=("--event-time-start", "2026-01-01"))
    argv = DbtRunner().launch(narrowed(plan, compilation())).argv
    start = argv.index("--select") + 1
    assert argv[start : start + 4] == (
        "fqn:shop.odd",
        "fqn:shop.marts.orders,file:orders.sql",
        "fqn:shop.marts.not_null_orders_id,file:m.yml",
        "fqn:shop.marts.orders.sums,file:m.yml",
    )
    assert argv[-4:] == ("--event-time-start", "2026-01-01", "--indirect-selection", "empty")
    assert "--selector" not in argv
    assert "--exclude" not in argv


def test_a_node_that_the_project_does_not_have_is_drift(tmp_path: Path) -> None:
    with pytest.raises(Drift, match=r"model\.shop\.gone"):
        narrowed(plan_of(Dbt(), tmp_path, ["model.shop.gone"]), compilation())


def test_a_plain_program_has_no_nodes_to_choose_from(tmp_path: Path) -> None:
    plan = plan_of(Command(argv=("true",)), tmp_path, ["command:orders"])
    assert narrowed(plan, compilation()) is plan
