"""What the drift keys of dbt and sqb nodes cover; real tools are tried in tests/e2e/test_compile_examples.py."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chalicelib.projects.dbt_manifest import has_run_hooks, manifest_nodes
from chalicelib.projects.graph import Node
from chalicelib.projects.relations import naming_rule
from chalicelib.projects.sqlbuild_artifacts import Artifacts
from chalicelib.projects.sqlbuild_config import sqlbuild_connection

Change = Callable[[dict[str, Any]], object]
RULE = naming_rule("duckdb")


def macro(name: str, text: str, *uses: str, package: str = "shop") -> dict[str, Any]:
    return {"name": name, "package_name": package, "macro_sql": text, "depends_on": {"macros": list(uses)}}


def manifest() -> dict[str, Any]:
    model = {
        "resource_type": "model",
        "name": "orders",
        "relation_name": '"coffee"."main"."Orders"',
        "raw_code": "select 1",
        "checksum": {"checksum": "c1"},
        "config": {"materialized": "table", "pre-hook": [], "post-hook": []},
        "unrendered_config": {"materialized": "table"},
        "depends_on": {"macros": ["macro.shop.outer"], "nodes": ["seed.shop.beans"]},
        "columns": {"id": {"name": "id", "data_type": "integer", "description": ""}},
        "created_at": 1.0,
    }
    seed = {
        "resource_type": "seed",
        "name": "beans",
        "relation_name": '"coffee"."main"."beans"',
        "checksum": {"checksum": "path-only"},
        "original_file_path": "seeds/beans.csv",
        "root_path": ".",
        "config": {},
        "depends_on": {"macros": []},
    }
    return {
        "metadata": {"adapter_type": "duckdb", "generated_at": "now", "invocation_id": "x"},
        "nodes": {"model.shop.orders": model, "seed.shop.beans": seed},
        "sources": {},
        "unit_tests": {},
        "macros": {
            "macro.shop.outer": macro("outer", "outer text", "macro.shop.inner", "macro.dbt.dispatch"),
            "macro.shop.inner": macro("inner", "inner text"),
            "macro.shop.unused": macro("unused", "unused text"),
            "macro.shop.duckdb__dispatch": macro("duckdb__dispatch", "dispatched text"),
            "macro.shop.materialization_table_default": macro("materialization_table_default", "own table"),
            "macro.dbt.dispatch": macro("dispatch", "dbt text", package="dbt"),
        },
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "beans.csv").write_text("id\n1\n")
    return tmp_path


def dbt_keys(entry: dict[str, Any], folder: Path) -> dict[str, str]:
    return {key: node.drift_key for key, node in manifest_nodes(entry, RULE, folder).items()}


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["nodes"]["model.shop.orders"].update(raw_code="select 2"),
        lambda m: m["nodes"]["model.shop.orders"].update(unrendered_config={"materialized": "view"}),
        lambda m: m["nodes"]["model.shop.orders"].update(relation_name='"coffee"."other"."orders"'),
        lambda m: m["macros"]["macro.shop.outer"].update(macro_sql="changed"),
        lambda m: m["macros"]["macro.shop.inner"].update(macro_sql="changed"),
        lambda m: m["macros"]["macro.shop.duckdb__dispatch"].update(macro_sql="changed"),
        lambda m: m["macros"]["macro.shop.materialization_table_default"].update(macro_sql="changed"),
    ],
)
def test_what_changes_the_sql_of_a_dbt_model_changes_its_key_alone(project: Path, change: Change) -> None:
    changed = manifest()
    change(changed)
    before, after = dbt_keys(manifest(), project), dbt_keys(changed, project)
    assert [key for key in before if before[key] != after[key]] == ["model.shop.orders"]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["metadata"].update(generated_at="later", invocation_id="y"),
        lambda m: m["nodes"]["model.shop.orders"].update(created_at=2.0, root_path="/elsewhere"),
        lambda m: m["macros"]["macro.shop.unused"].update(macro_sql="changed"),
        lambda m: m["macros"]["macro.dbt.dispatch"].update(macro_sql="changed"),
        lambda m: m["nodes"]["model.shop.orders"]["columns"]["id"].update(description="changed"),
    ],
)
def test_what_does_not_change_the_sql_changes_no_key(project: Path, change: Change) -> None:
    changed = manifest()
    change(changed)
    assert dbt_keys(manifest(), project) == dbt_keys(changed, project)


def test_the_bytes_of_a_seed_decide_its_key(project: Path) -> None:
    before = dbt_keys(manifest(), project)
    (project / "seeds" / "beans.csv").write_text("id\n2\n")
    after = dbt_keys(manifest(), project)
    assert [key for key in before if before[key] != after[key]] == ["seed.shop.beans"]


def test_dbt_relations_hooks_and_sources(project: Path) -> None:
    found = manifest()
    found["nodes"]["model.shop.orders"]["config"]["post-hook"] = [{"sql": "grant"}]
    found["sources"]["source.shop.raw.t"] = {
        "resource_type": "source",
        "relation_name": '"coffee"."raw"."t"',
        "name": "t",
    }
    nodes = manifest_nodes(found, RULE, project)
    assert nodes["model.shop.orders"].relation == "coffee.main.orders"
    assert (nodes["model.shop.orders"].hooks, nodes["seed.shop.beans"].hooks) == (True, False)
    assert not nodes["source.shop.raw.t"].writes
    assert not has_run_hooks(found)
    found["nodes"]["operation.shop.x"] = {"resource_type": "operation"}
    assert has_run_hooks(found)
    assert "operation.shop.x" not in manifest_nodes(found, RULE, project)


DAG: dict[str, Any] = {
    "nodes": [
        {"id": "model:orders", "kind": "model", "name": "orders", "path": "models/orders.sql", "sql": "MODEL(); SELECT 1",
         "materialization_type": "table", "target": {"qualified_name": "dev.orders"}},
        {"id": "seed:beans", "kind": "seed", "name": "beans", "path": "seeds/beans.csv",
         "target": {"qualified_name": "dev.beans"}},
        {"id": "source:raw", "kind": "source", "name": "raw", "path": "sources/raw.yml",
         "target": {"qualified_name": "dev.raw"}},
    ],
    "edges": [{"from_id": "source:raw", "to_id": "model:orders"}],
    "checks": [{"id": "audit:x", "kind": "audit", "path": "audits/x.sql", "checked_asset_ids": ["model:orders"]}],
}  # fmt: skip
SQB_MANIFEST: dict[str, Any] = {
    "nodes": {"model.s.orders": {"resource_type": "model", "name": "orders", "checksum": {"checksum": "c"}, "config": {},
                                 "compiled_code": "SELECT 1"}},
    "sources": {"source.s.raw": {"resource_type": "source", "name": "raw", "meta": {}}},
}  # fmt: skip


def sqb_nodes(folder: Path, dag: dict[str, Any] | None = None, found: dict[str, Any] | None = None) -> dict[str, Node]:
    return Artifacts(dag or DAG, found or SQB_MANIFEST, folder, RULE, "coffee").nodes()


def test_sqb_nodes_have_relations_in_their_database(project: Path) -> None:
    nodes = sqb_nodes(project)
    assert nodes["model:orders"].relation == "coffee.dev.orders"
    assert nodes["model:orders"].depends_on == ("source:raw",)
    assert not nodes["source:raw"].writes


def test_a_source_with_a_loader_is_written(project: Path) -> None:
    found = copy.deepcopy(SQB_MANIFEST)
    found["sources"]["source.s.raw"]["meta"] = {"sqlbuild": {"loader": "raw"}}
    assert sqb_nodes(project, found=found)["source:raw"].writes


def changed_sql(dag: dict[str, Any], _: dict[str, Any], __: Path) -> None:
    dag["nodes"][0]["sql"] = "MODEL(tags [x]); SELECT 1"


def changed_compiled(_: dict[str, Any], found: dict[str, Any], __: Path) -> None:
    found["nodes"]["model.s.orders"]["compiled_code"] = "SELECT 2"  # a macro changed


def changed_audit(_: dict[str, Any], __: dict[str, Any], folder: Path) -> None:
    (folder / "audits").mkdir()
    (folder / "audits" / "x.sql").write_text("AUDIT(); SELECT 2")


@pytest.mark.parametrize("change", [changed_sql, changed_compiled, changed_audit])
def test_what_changes_an_sqb_model_changes_its_key_alone(project: Path, change: Callable[..., None]) -> None:
    before = {key: node.drift_key for key, node in sqb_nodes(project).items()}
    dag, found = copy.deepcopy(DAG), copy.deepcopy(SQB_MANIFEST)
    change(dag, found, project)
    after = {key: node.drift_key for key, node in sqb_nodes(project, dag, found).items()}
    assert [key for key in before if before[key] != after[key]] == ["model:orders"]


def test_the_bytes_of_an_sqb_seed_decide_its_key(project: Path) -> None:
    before = sqb_nodes(project)["seed:beans"].drift_key
    (project / "seeds" / "beans.csv").write_text("id\n2\n")
    assert sqb_nodes(project)["seed:beans"].drift_key != before


def test_the_hooks_folder_counts_for_models_with_hooks(project: Path) -> None:
    found = copy.deepcopy(SQB_MANIFEST)
    found["nodes"]["model.s.orders"]["config"] = {"post-hook": [{"sql": "x"}]}
    before = sqb_nodes(project, found=found)["model:orders"]
    (project / "hooks" / "python").mkdir(parents=True)
    (project / "hooks" / "python" / "notify.py").write_text("x = 1\n")
    after = sqb_nodes(project, found=found)["model:orders"]
    assert before.hooks
    assert before.drift_key != after.drift_key


CONFIG = """
adapter = "duckdb"
[connections.local]
database = "data/coffee.duckdb"
[targets.dev]
connection = "local"
"""


def test_the_connection_of_an_sqb_target(tmp_path: Path) -> None:
    (tmp_path / "sqlbuild_project.toml").write_text(CONFIG)
    found = sqlbuild_connection(tmp_path, "dev")
    assert found is not None
    assert (found.adapter, found.place, found.database) == ("duckdb", str(tmp_path / "data/coffee.duckdb"), "coffee")
    (tmp_path / "sqlbuild_local.toml").write_text('[connections.local]\ndatabase = ":memory:"\n')
    local = sqlbuild_connection(tmp_path, "dev")
    assert local is not None
    assert (local.place, local.database) == (None, "memory")


def test_the_connection_of_a_remote_sqb_target_holds_no_secret(tmp_path: Path) -> None:
    text = 'adapter = "snowflake"\n[connections.w]\naccount = "ab1"\ndatabase = "SHOP"\npassword = "p"\n'
    (tmp_path / "sqlbuild_project.toml").write_text(text + '[targets.dev]\nconnection = "w"\n')
    found = sqlbuild_connection(tmp_path, "dev")
    assert found is not None
    assert (found.adapter, found.place, found.database) == ("snowflake", "ab1", "SHOP")
    assert sqlbuild_connection(tmp_path / "nowhere", "dev") is None
