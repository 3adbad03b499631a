"""dbt; tried with dbt-core 1.11 and dbt-duckdb 1.11.

A line of its JSON log that carries ``node_info`` with a finish time, or the status ``skipped``, is a finished node.
Times in it are UTC without a zone. A stale ``run_results.json`` stays on disk when dbt dies early, so one is trusted
only when it names this run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...authoring.builds import Dbt
from ...kernel.canonical import canonical_json
from ...runs.model import NodeReport, NodeStatus
from .documents import read_document, shortened
from .environment import child_environment
from .plan import Evidence, Failure, Launch, RunPlan

_STATUS: Mapping[str, NodeStatus] = {
    "success": "succeeded",
    "pass": "succeeded",
    "warn": "warned",
    "error": "failed",
    "fail": "failed",
    "runtime error": "failed",
    "partial success": "failed",
    "skipped": "skipped",
    "no-op": "skipped",
}
_HOOK = "operation."


class DbtRunner:
    """The dbt side of one run."""

    def launch(self, plan: RunPlan) -> Launch:
        """``dbt build`` or the part of it that the job names."""
        build = plan.build
        if not isinstance(build, Dbt):
            raise TypeError("the plan of another tool")
        logs = plan.run_folder / "logs"
        logs.mkdir(mode=0o700)
        argv = [
            str(plan.python.parent / "dbt"),
            "--no-use-colors", "--log-format-file", "json", "--log-level-file", "info", "--log-path", str(logs),
            "--log-file-max-bytes", "0",  # a rotated log would hide records from the reader
            build.command,
            "--target-path", str(plan.run_folder / "target"),
            "--profiles-dir", str(plan.profiles_dir),
            *(["--select", *build.select] if build.select else []),
            *(["--exclude", *build.exclude] if build.exclude else []),
            *(["--selector", build.selector] if build.selector else []),
            *(["--target", build.target] if build.target else []),
            "--vars", canonical_json(dict(build.vars)),
            *(["--threads", str(build.threads)] if build.threads else []),
            *(["--full-refresh"] if build.full_refresh else []),
            *(["--fail-fast"] if build.fail_fast else []),
            *plan.extra_options,
        ]  # fmt: skip
        own = {
            "DBT_ENV_CUSTOM_ENV_RUN_ID": plan.inputs.run_id,
            "DBT_ENV_CUSTOM_ENV_CLAIM_ID": plan.inputs.claim_id,
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
        }
        return Launch(tuple(argv), child_environment(plan, own), plan.project_folder, logs / "dbt.log")

    def parse_record(self, record: Mapping[str, object]) -> NodeReport | None:
        """A finished or skipped node; hooks, starts and everything else are ``None``."""
        data = record.get("data")
        info = data.get("node_info") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(info, dict):
            return None
        node, status = str(info.get("unique_id") or ""), _STATUS.get(str(info.get("node_status")))
        finished = _instant(info.get("node_finished_at"))
        if not node or node.startswith(_HOOK) or status is None or (finished is None and status != "skipped"):
            return None
        seconds = data.get("execution_time")
        return NodeReport(
            node=node,
            status=status,
            started_at=_instant(info.get("node_started_at")),
            finished_at=finished,
            duration_seconds=float(seconds) if isinstance(seconds, int | float) else None,
        )

    def read_evidence(self, plan: RunPlan, log_tail: str) -> Evidence:
        """``run_results.json``, trusted only when its environment names this run."""
        document = read_document(plan.run_folder / "target" / "run_results.json")
        if document is None or not _is_of(document, plan.inputs.run_id):
            return Evidence(failure=_failure_in_log(log_tail))
        results = [entry for entry in document.get("results", []) if isinstance(entry, dict)]
        nodes = [entry for entry in results if not str(entry.get("unique_id")).startswith(_HOOK)]
        return Evidence(
            document=True,
            touched=len(nodes),
            warnings=sum(entry.get("status") == "warn" for entry in nodes),
            failure=_first_failure(results) or _failure_in_log(log_tail),
            nodes=tuple(_telling(entry) for entry in nodes if entry.get("message") and _needs_words(entry)),
            summary={"tool": "dbt", "nodes": len(nodes), "elapsed_seconds": document.get("elapsed_time")},
        )


def _is_of(document: Mapping[str, Any], run_id: str) -> bool:
    environment = (document.get("metadata") or {}).get("env")
    return isinstance(environment, dict) and environment.get("RUN_ID") == run_id


def _instant(value: object) -> datetime | None:
    if not isinstance(value, str) or not value:
        return None
    instant = datetime.fromisoformat(value)
    return instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)


def _needs_words(entry: Mapping[str, Any]) -> bool:
    return _STATUS.get(str(entry.get("status"))) in {"failed", "warned"}


def _telling(entry: Mapping[str, Any]) -> NodeReport:
    timing = [part for part in entry.get("timing") or [] if isinstance(part, dict)]
    return NodeReport(
        node=str(entry["unique_id"]),
        status=_STATUS[str(entry["status"])],
        started_at=_instant(timing[0].get("started_at")) if timing else None,
        finished_at=_instant(timing[-1].get("completed_at")) if timing else None,
        duration_seconds=entry.get("execution_time"),
        error_code=shortened(entry["status"]),
        message=shortened(entry["message"]),
    )


def _first_failure(results: list[dict[str, Any]]) -> Failure | None:
    for entry in results:
        if _STATUS.get(str(entry.get("status"))) == "failed":
            return Failure(str(entry["status"]), shortened(f"{entry.get('unique_id')}: {entry.get('message')}"))
    return None


def _failure_in_log(log_tail: str) -> Failure | None:
    lines = [line.strip() for line in log_tail.splitlines() if line.strip()]
    at = next((number for number, line in enumerate(lines) if "Encountered an error" in line), None)
    if at is None:
        return Failure(None, shortened(lines[-1])) if lines else None
    return Failure(None, shortened("\n".join(lines[at + 1 : at + 4])))
