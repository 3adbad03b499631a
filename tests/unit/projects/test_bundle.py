from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from chalicelib import Command, Input, Job, Pool, Retry, RunSensor, Schedule, SqlBuild
from chalicelib.authoring.collect import FoundJob
from chalicelib.kernel.errors import Drift, InvalidDeclaration, UnknownDocument
from chalicelib.projects.bundle import Bundle, GitRecord, SnapshotIndex, read_bundle, write_bundle
from chalicelib.projects.command import command_node, verified_nodes
from chalicelib.projects.compilation import Compilation
from chalicelib.projects.drafts import JobDraft, draft_of
from chalicelib.projects.graph import Connection, Node, ToolGraph
from chalicelib.projects.indexing import build_index
from chalicelib.projects.project_file import ProjectFile, TargetSettings
from chalicelib.projects.resolution import Resolution
from chalicelib.projects.verify import compare, refuse_drift

CONNECTION = Connection("duckdb", "/data/coffee.duckdb", "coffee")


def node(code: str, *, relation: str | None = "coffee.main.orders", hooks: bool = False) -> Node:
    return Node(
        kind="model", relation=relation, parts={"code": code}, detail={"name": "orders", "code": code}, hooks=hooks
    )


def graph(*jobs: str, code: str = "select 1", hooks: bool = False) -> ToolGraph:
    nodes = {"model:orders": node(code, hooks=hooks), "model:lines": node("select 2", relation="coffee.main.lines")}
    return ToolGraph("1.0", "duckdb", CONNECTION, nodes, dict.fromkeys(jobs, ("model:orders",)), database="coffee")


def draft(key: str = "orders", **fields: object) -> JobDraft:
    return draft_of(FoundJob(Job(key=key, **{"build": SqlBuild(target="dev"), **fields}), f"jobs: {key}"))  # type: ignore[arg-type]


def bundle(*drafts: JobDraft, code: str = "select 1", folder: str = "/project", git: GitRecord | None = None) -> Bundle:
    project = ProjectFile(
        folder=Path(folder), name="coffee", location="coffee", modules=("jobs",), targets={"dev": TargetSettings()}
    )
    found = graph(*[item.job for item in drafts if item.build.kind != "command"], code=code)
    return build_index(project, Resolution("sqb", (found,), drafts), git or GitRecord())


def compilation(made: Bundle) -> Compilation:
    return Compilation(
        bundle=made, project_dir=Path(), location="coffee", target="dev", python=None, single_writer=True,
        warehouse="coffee/dev", settle_seconds=0, connection_fingerprint=CONNECTION.fingerprint(), warnings=(),
    )  # fmt: skip


def test_a_bundle_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """S3: what is published is byte for byte what was compiled."""
    made = bundle(draft(schedule=Schedule(cron="@daily", timezone="UTC"), retries=Retry(), pools=[Pool(name="p")]))
    write_bundle(compilation(made), tmp_path)
    again = read_bundle(tmp_path)
    assert again == made
    assert again.snapshot_id == made.snapshot_id
    assert SnapshotIndex.model_validate_json((tmp_path / "index.json").read_bytes()).snapshot_id() == made.snapshot_id


def test_an_altered_or_missing_document_is_refused(tmp_path: Path) -> None:
    write_bundle(bundle(draft()), tmp_path)
    document = next((tmp_path / "documents").iterdir())
    document.write_bytes(b"{}")
    with pytest.raises(UnknownDocument, match=r"document 'graph' .* was altered"):
        read_bundle(tmp_path)
    document.unlink()
    with pytest.raises(UnknownDocument, match="document 'graph' is missing"):
        read_bundle(tmp_path)


def test_a_folder_without_an_index_is_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(UnknownDocument, match=r"holds no index\.json"):
        read_bundle(tmp_path)
    (tmp_path / "index.json").write_text("{}")
    with pytest.raises(UnknownDocument, match="is no snapshot index"):
        read_bundle(tmp_path)


def test_the_id_depends_on_the_content_and_not_on_the_folder() -> None:
    assert bundle(draft(), folder="/a").snapshot_id == bundle(draft(), folder="/b").snapshot_id
    assert bundle(draft()).snapshot_id != bundle(draft(), code="select 3").snapshot_id
    assert bundle(draft()).snapshot_id != bundle(draft(timeout=7)).snapshot_id


def test_the_baseline_covers_the_compile_result_and_not_where_it_came_from() -> None:
    plain, tagged = bundle(draft()), bundle(draft(), git=GitRecord(revision="abc", dirty=True, authors=("A",)))
    assert plain.index.baseline == tagged.index.baseline
    assert plain.snapshot_id != tagged.snapshot_id
    assert plain.index.baseline != bundle(draft(), code="select 3").index.baseline


def test_the_definition_says_all_that_a_server_needs() -> None:
    made = bundle(
        draft(schedule=Schedule(cron="@daily", timezone="UTC"), inputs={"mode": Input(default="daily")}),
        draft("after", sensors=[RunSensor(jobs=["orders"])]),
    )
    definition = made.index.jobs["orders"]
    assert definition.nodes == ("model:orders",)
    assert definition.relations == ("coffee.main.orders",)
    assert definition.triggers[0].model_dump() == {
        "name": "orders/schedule",
        "kind": "schedule",
        "enabled": True,
        "spec": {"cron": "@daily", "timezone": "UTC", "dst": "cron", "on_resume": "none"},
    }
    assert made.index.jobs["after"].triggers[0].spec == {"jobs": ["orders"], "statuses": ["succeeded"]}
    assert made.index.nodes["model:orders"].relation == "coffee.main.orders"


def test_what_writes_adds_and_replaces() -> None:
    listed = bundle(draft(writes=["Main.Extra", "orders_log"])).index.jobs["orders"]
    assert listed.relations == ("coffee.main.extra", "orders_log")


def test_a_command_job_is_verified_by_its_definition() -> None:
    made = bundle(draft(), draft("export", build=Command(argv=["x"]), writes=["a.b.c"]))
    definition = made.index.jobs["export"]
    assert (definition.nodes, definition.relations) == ((), ("a.b.c",))
    assert verified_nodes(definition) == (command_node("export"),)
    other = bundle(draft(), draft("export", build=Command(argv=["y"]), writes=["a.b.c"]))
    pinned = {key: record.drift_key for key, record in made.index.nodes.items()}
    assert [item.node for item in compare(pinned, verified_nodes(definition), compilation(other))] == ["command:export"]


def test_hooks_whose_target_is_unknown_are_reported_unless_the_author_said_it() -> None:
    def warned(found: JobDraft) -> list[str]:
        resolved = Resolution("sqb", (graph(found.job, hooks=True),), (found,))
        return [f"{warning.code} {warning.subject}" for warning in resolved.warnings()]

    assert warned(draft()) == ["unclaimed_hook_writes model:orders"]
    assert warned(draft(writes=["a.b.c"])) == []


def test_groups_that_see_a_node_differently_have_one_key_that_covers_both() -> None:
    pair = (graph("a", code="select 1"), graph("b", code="select 2"))
    merged = Resolution("sqb", pair, (draft("a"), draft("b"))).nodes()
    assert merged["model:orders"].drift_key not in {one.nodes["model:orders"].drift_key for one in pair}
    assert merged["model:lines"].drift_key == pair[0].nodes["model:lines"].drift_key


def test_drift_names_what_differs_and_at_most_twenty() -> None:
    on_disk = compilation(bundle(draft(), code="select 3"))
    pinned = {key: record.drift_key for key, record in bundle(draft()).index.nodes.items()}
    drifted = compare(pinned, ["model:orders", "model:lines", "model:gone"], on_disk)
    assert [(item.node, item.change) for item in drifted] == [("model:gone", "missing"), ("model:orders", "changed")]
    with pytest.raises(Drift, match=r"model:gone \(missing\), model:orders \(changed\); publish"):
        refuse_drift(drifted)
    assert len(compare({}, [f"model:{number}" for number in range(50)], on_disk)) == 20
    refuse_drift(compare(pinned, ["model:lines"], on_disk))
    assert compare({}, ["model:lines"], on_disk)[0].change == "unpublished"


def test_an_index_of_another_format_is_refused() -> None:
    whole = bundle(draft()).index.model_dump(mode="json")
    with pytest.raises(ValidationError, match="format"):
        SnapshotIndex.model_validate({**whole, "format": 2})
    with pytest.raises(ValidationError, match="since"):
        SnapshotIndex.model_validate({**whole, "since": "now"})


def test_a_relation_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidDeclaration, match="is no relation"):
        bundle(draft(writes=["a..b"]))


def test_the_fingerprint_tells_databases_apart_and_holds_no_secret() -> None:
    other = Connection("duckdb", "/data/tea.duckdb", "coffee")
    assert CONNECTION.fingerprint() == Connection("duckdb", "/data/coffee.duckdb", "coffee").fingerprint()
    assert CONNECTION.fingerprint() != other.fingerprint()
