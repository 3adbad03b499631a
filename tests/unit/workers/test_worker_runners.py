"""Command lines and environments of scheduler.md 8.3, and reading what the tools leave."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from chalicelib.authoring.builds import Build, Command, Dbt, SqlBuild
from chalicelib.projects.bundle import JobDefinition
from chalicelib.projects.inputs import AppliedInputs
from chalicelib.workers.runners.command import CommandRunner
from chalicelib.workers.runners.dbt import DbtRunner
from chalicelib.workers.runners.documents import LiveRecords
from chalicelib.workers.runners.plan import RunPlan
from chalicelib.workers.runners.sqlbuild import SqlBuildRunner
from chalicelib.workers.verification import build_with, extra_options
from tests.unit.workers.doubles import inputs_of

RUN = "run_0123456789abcdef"


@pytest.fixture(autouse=True)
def worker_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_SECRET_ACCESS_KEY": "s", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.2/", "TIDEMILL_TOKEN_FILE": "/t",
        "TIDEMILL_TOKEN": "tml_", "PYTHONPATH": "/p", "DBT_ENV_SECRET_X": "s", "DATABASE_URL": "d", "LC_ALL": "C.UTF-8",
        "TZ": "UTC", "HOME": "/home/w", "PATH": "/usr/bin",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)


def plan_of(build: Build, folder: Path, **fields: Any) -> RunPlan:
    definition = JobDefinition(
        job="orders",
        build=build,
        nodes=("model:a",),
        relations=(),
        worker="container",
        timeout_seconds=60,
        concurrency=1,
    )
    inputs = inputs_of(
        definition,
        RUN,
        origin="schedule",
        scheduled_for=datetime(2026, 3, 1, 6, tzinfo=UTC),
        git_revision="abc",
        git_dirty=True,
    )
    return RunPlan(
        inputs=inputs,
        build=build,
        run_folder=folder,
        project_folder=Path("/project"),
        python=Path("/project/.venv/bin/python"),
        profiles_dir=Path("/project/profiles"),
        **fields,
    )


COMMON = {
    "PATH": "/project/.venv/bin:/usr/bin", "HOME": "/home/w", "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1",
    "TIDEMILL_RUN_ID": RUN, "TIDEMILL_CLAIM_ID": f"clm_{RUN}", "TIDEMILL_JOB": "orders", "TIDEMILL_ORIGIN": "schedule",
    "TIDEMILL_SCHEDULED_FOR": "2026-03-01T06:00:00.000000Z",
}  # fmt: skip


def without_machine(environment: Any) -> dict[str, str]:
    machine = {"LANG", "LANGUAGE", "TMPDIR", "USER", "LOGNAME", "SSL_CERT_FILE", "SSL_CERT_DIR", "LC_CTYPE"}
    return {name: value for name, value in environment.items() if name not in machine}


def test_sqb_plain(tmp_path: Path) -> None:
    launch = SqlBuildRunner().launch(plan_of(SqlBuild(target="prod"), tmp_path))
    assert launch.argv == (
        "/project/.venv/bin/sqb", "build", "--project-dir", "/project", "--target", "prod", "--vars", "{}",
        "--json-output", f"{tmp_path}/result.json", "--no-color",
    )  # fmt: skip
    assert without_machine(launch.environment) == {
        **COMMON,
        "SQLBUILD_INTEGRATION_RESULT_PATH": f"{tmp_path}/live.jsonl",
        "SQLBUILD_INVOCATION_CONTEXT_JSON": f'{{"claim":"clm_{RUN}","job":"orders","run":"{RUN}"}}',
        "SQLBUILD_GIT_REVISION": "abc",
        "SQLBUILD_GIT_DIRTY": "true",
    }
    assert launch.live_records == tmp_path / "live.jsonl"
    assert launch.cwd == Path("/project")


def test_sqb_every_option(tmp_path: Path) -> None:
    build = SqlBuild(
        select=("tag:orders+", "a,b"), exclude=("path:x",), full_refresh=True, fail_fast=True, vars={"b": 1, "a": "x"},
        target="prod", concurrency=3, start="2026-01-01", end="2026-02-01", max_microbatches=9, load="reload", tests=False,
        audits=False, python=False, defer_to="dev", defer_sources_to="stage", clone_from="other", test_timeout="30s",
        warehouse="big", allow=("snapshot_full_refresh", "retention_decrease"),
    )  # fmt: skip
    argv = SqlBuildRunner().launch(plan_of(build, tmp_path, extra_options=("--start-cursor-int", "5"))).argv
    assert argv[4:] == (
        "--select-file", f"{tmp_path}/select.txt", "--exclude", "path:x", "--target", "prod", "--vars", '{"a":"x","b":1}',
        "--json-output", f"{tmp_path}/result.json", "--no-color", "--concurrency", "3", "--start-cursor", "2026-01-01",
        "--end-cursor", "2026-02-01", "--max-microbatches", "9", "--defer-to", "dev", "--defer-sources-to", "stage",
        "--defer-clone-from", "other", "--test-timeout", "30s", "--warehouse", "big", "--full-refresh", "--fail-fast",
        "--no-tests", "--no-audits", "--no-python", "--reload", "--allow-snapshot-full-refresh", "--allow-retention-decrease",
        "--start-cursor-int", "5",
    )  # fmt: skip
    assert (tmp_path / "select.txt").read_text() == "tag:orders+\na,b\n"


def test_dbt(tmp_path: Path) -> None:
    build = Dbt(
        select=("a+",), exclude=("b",), selector=None, full_refresh=True, vars={"x": 1}, target="dev", threads=2
    )
    launch = DbtRunner().launch(plan_of(build, tmp_path))
    assert launch.argv == (
        "/project/.venv/bin/dbt", "--no-use-colors", "--log-format-file", "json", "--log-level-file", "info", "--log-path",
        f"{tmp_path}/logs", "--log-file-max-bytes", "0", "build", "--target-path", f"{tmp_path}/target", "--profiles-dir",
        "/project/profiles", "--select", "a+", "--exclude", "b", "--target", "dev", "--vars", '{"x":1}', "--threads", "2",
        "--full-refresh",
    )  # fmt: skip
    assert without_machine(launch.environment) == {
        **COMMON,
        "DBT_ENV_CUSTOM_ENV_RUN_ID": RUN,
        "DBT_ENV_CUSTOM_ENV_CLAIM_ID": f"clm_{RUN}",
        "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
    }
    assert launch.live_records == tmp_path / "logs/dbt.log"


def test_command_gets_no_secret_and_cannot_rename_its_run(tmp_path: Path) -> None:
    build = Command(argv=("make", "orders"), env={"MODE": "daily", "TIDEMILL_RUN_ID": "forged"}, cwd="jobs")
    plan = plan_of(build, tmp_path, extra_environment={"DAY": "1"}, target_environment={"DB": "x", "MODE": "target"})
    launch = CommandRunner().launch(plan)
    assert launch.argv == ("make", "orders")
    assert launch.cwd == Path("/project/jobs")
    assert without_machine(launch.environment) == {
        **COMMON, "MODE": "daily", "DAY": "1", "DB": "x", "TIDEMILL_GIT_REVISION": "abc"
    }  # fmt: skip


def test_a_run_without_occurrence_says_so(tmp_path: Path) -> None:
    plan = plan_of(Command(argv=("true",)), tmp_path)
    manual = plan.inputs.model_copy(update={"scheduled_for": None})
    environment = (
        CommandRunner()
        .launch(RunPlan(manual, plan.build, tmp_path, Path("/p"), Path("/p/python"), Path("/p")))
        .environment
    )
    assert environment["TIDEMILL_SCHEDULED_FOR"] == ""


def test_inputs_become_variables_options_and_cursors() -> None:
    applied = AppliedInputs(
        vars={"mode": "full"}, options={"full_refresh": True, "start": "2026-01-01"}, cursors={"end": ("ts", "2026-02-01")},
    )  # fmt: skip
    build = build_with(SqlBuild(select=("tag:x",), exclude=("c",), vars={"mode": "daily", "k": 1}), applied)
    assert isinstance(build, SqlBuild)
    assert (build.select, build.exclude, build.full_refresh, build.start) == (("tag:x",), ("c",), True, "2026-01-01")
    assert build.vars == {"mode": "full", "k": 1}
    assert extra_options(build, applied) == ("--end-cursor-ts", "2026-02-01")
    assert extra_options(Dbt(), applied) == ("--event-time-start", "2026-01-01")
    assert build_with(Command(argv=("true",)), applied) == Command(argv=("true",))


SQB_LINE = {
    "event_type": "resource_attempt_failed", "resource_id": "model:dim", "occurred_at": "2026-12-01T14:35:08.322634+00:00",
    "duration_ms": 1500.0, "error_code": "R002", "checks": [],
}  # fmt: skip


def test_sqb_live_records() -> None:
    report = SqlBuildRunner().parse_record(SQB_LINE)
    assert report is not None
    assert (report.node, report.status, report.duration_seconds, report.error_code) == (
        "model:dim",
        "failed",
        1.5,
        "R002",
    )
    assert report.started_at == datetime(2026, 12, 1, 14, 35, 6, 822634, tzinfo=UTC)
    statuses = {
        event: report.status if (report := SqlBuildRunner().parse_record({**SQB_LINE, "event_type": event})) else None
        for event in ("resource_attempt_completed", "resource_attempt_skipped", "statement_completed")
    }
    assert statuses == {
        "resource_attempt_completed": "succeeded", "resource_attempt_skipped": "skipped", "statement_completed": None
    }  # fmt: skip
    warned = SqlBuildRunner().parse_record(
        {**SQB_LINE, "event_type": "resource_attempt_completed", "checks": [{"status": "warn"}]}
    )
    assert warned is not None
    assert warned.status == "warned"


def test_sqb_result_document(tmp_path: Path) -> None:
    document = {
        "command": "build", "status": "failed", "summary": {"success_count": 1, "warning_count": 1},
        "assets": [
            {"kind": "model", "name": "a", "status": "success", "duration_ms": 5, "warnings": []},
            {"kind": "model", "name": "b", "status": "success", "duration_ms": 5, "warnings": []},
            {"kind": "model", "name": "c", "status": "failed", "duration_ms": 5, "error_code": "R6", "error_message": "bad"},
        ],
        "checks": [{"kind": "audit", "name": "x", "asset_name": "b", "status": "warn", "passed": False}],
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(document))
    evidence = SqlBuildRunner().read_evidence(plan_of(SqlBuild(), tmp_path), "")
    assert (evidence.document, evidence.touched, evidence.warnings) == (True, 4, 1)
    assert evidence.failure is not None
    assert (evidence.failure.code, evidence.failure.message) == ("R6", "c: bad")
    assert {node.node: node.status for node in evidence.nodes} == {"model:b": "warned", "model:c": "failed"}


@pytest.mark.parametrize("broken", [None, "", "{", "[]", '{"command": "plan"}'])
def test_sqb_without_a_document_reads_the_code_from_the_log(tmp_path: Path, broken: str | None) -> None:
    if broken is not None:
        (tmp_path / "result.json").write_text(broken)
    evidence = SqlBuildRunner().read_evidence(
        plan_of(SqlBuild(), tmp_path), "x\nerror[S007]: unknown selector name 'a'\n"
    )
    assert not evidence.document
    assert evidence.failure is not None
    assert (evidence.failure.code, evidence.failure.message) == ("S007", "unknown selector name 'a'")


def test_dbt_live_records() -> None:
    info = {"unique_id": "model.d.a", "node_status": "success", "node_started_at": "2026-12-01T14:35:41.289238",
            "node_finished_at": "2026-12-01T14:35:41.352336"}  # fmt: skip
    report = DbtRunner().parse_record({"data": {"node_info": info, "execution_time": 0.06}})
    assert report is not None
    assert (report.node, report.status, report.duration_seconds) == ("model.d.a", "succeeded", 0.06)
    assert report.started_at == datetime(2026, 12, 1, 14, 35, 41, 289238, tzinfo=UTC)

    def status(**changed: str) -> str | None:
        told = DbtRunner().parse_record({"data": {"node_info": {**info, **changed}}})
        return told.status if told else None

    assert status(node_status="error") == "failed"
    assert status(node_status="warn") == "warned"
    assert status(node_status="skipped", node_finished_at="") == "skipped"
    assert status(node_status="started", node_finished_at="") is None
    assert status(unique_id="operation.d.on-run-start-0") is None
    assert DbtRunner().parse_record({"data": {}}) is None


def test_dbt_trusts_the_results_of_its_own_run_only(tmp_path: Path) -> None:
    results = [
        {"unique_id": "operation.d.start-0", "status": "success"},
        {"unique_id": "model.d.a", "status": "success", "message": "OK"},
        {"unique_id": "test.d.t", "status": "warn", "message": "Got 2 results", "timing": []},
        {"unique_id": "model.d.b", "status": "error", "message": "Runtime Error", "timing": [
            {"started_at": "2026-12-01T14:35:41.1Z", "completed_at": "2026-12-01T14:35:42.1Z"}]},
    ]  # fmt: skip
    target = tmp_path / "target"
    target.mkdir()
    for run, trusted in ((RUN, True), ("run_another", False)):
        document = {"metadata": {"env": {"RUN_ID": run}}, "results": results}
        (target / "run_results.json").write_text(json.dumps(document))
        evidence = DbtRunner().read_evidence(
            plan_of(Dbt(), tmp_path), "12:00  Encountered an error:\nRuntime Error\n  bad\n"
        )
        assert evidence.document is trusted
        assert evidence.failure is not None
        if trusted:
            assert (evidence.touched, evidence.warnings) == (3, 1)
            assert {node.node: node.status for node in evidence.nodes} == {"test.d.t": "warned", "model.d.b": "failed"}
            assert evidence.failure.message == "model.d.b: Runtime Error"
        else:
            assert (evidence.touched, evidence.failure.message) == (0, "Runtime Error\nbad")


def test_live_records_come_once_and_only_whole(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    records = LiveRecords(path)
    assert list(records.read()) == []
    path.write_text('{"a": 1}\n{"b":')
    assert list(records.read()) == [{"a": 1}]
    with path.open("a") as stream:
        stream.write(' 2}\nnot json\n[3]\n{"c": 3}\n')
    assert list(records.read()) == [{"b": 2}, {"c": 3}]
    assert list(records.read()) == []
    assert list(LiveRecords(None).read()) == []
