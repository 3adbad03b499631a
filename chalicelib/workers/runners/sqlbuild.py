"""SQLBuild (``sqb build``); tried with 0.183.0.

Its live records have one line per finished resource, whose ``resource_id`` is the node's id. Audits are not in them,
only in the result document, so a node with a failed warn-severity audit becomes ``warned`` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ...authoring.builds import SqlBuild
from ...kernel.canonical import canonical_json
from ...runs.model import NodeReport, NodeStatus
from .documents import read_document, shortened
from .environment import child_environment
from .plan import Evidence, Failure, Launch, RunPlan

_STATUS: Mapping[str, NodeStatus] = {
    "resource_attempt_completed": "succeeded",
    "resource_attempt_failed": "failed",
    "resource_attempt_skipped": "skipped",
}
_ERROR_CODE = re.compile(r"error\[([A-Z]+\d+)\]: ?(.*)")
_WARNING_COUNTS = ("warning_count", "python_check_warn_count")
_CONTEXT_BYTES = 4_000


class SqlBuildRunner:
    """The sqb side of one run."""

    def launch(self, plan: RunPlan) -> Launch:
        """``sqb build`` with every option of the job."""
        build = plan.build
        if not isinstance(build, SqlBuild):
            raise TypeError("the plan of another tool")
        live = plan.run_folder / "live.jsonl"
        argv = [
            str(plan.python.parent / "sqb"), "build",
            "--project-dir", str(plan.project_folder),
            *_selection(plan, build),
            *(["--target", build.target] if build.target else []),
            "--vars", canonical_json(dict(build.vars)),
            "--json-output", str(plan.run_folder / "result.json"),
            "--no-color",
            *_options(build),
            *plan.extra_options,
        ]  # fmt: skip
        own = {
            "SQLBUILD_INTEGRATION_RESULT_PATH": str(live),
            "SQLBUILD_INVOCATION_CONTEXT_JSON": _context(plan),
            "SQLBUILD_GIT_REVISION": plan.inputs.git_revision or "",
            "SQLBUILD_GIT_DIRTY": "true" if plan.inputs.git_dirty else "false",
        }
        return Launch(tuple(argv), child_environment(plan, own), plan.project_folder, live)

    def parse_record(self, record: Mapping[str, object]) -> NodeReport | None:
        """A finished resource; anything else is ``None``."""
        status = _STATUS.get(str(record.get("event_type")))
        node, at = record.get("resource_id"), record.get("occurred_at")
        if status is None or not isinstance(node, str) or not isinstance(at, str):
            return None
        finished = datetime.fromisoformat(at)
        duration = record.get("duration_ms")
        seconds = duration / 1000 if isinstance(duration, int | float) else None
        return NodeReport(
            node=node,
            status=_status_of_checks(status, record.get("checks")),
            started_at=finished - timedelta(seconds=seconds or 0),
            finished_at=finished,
            duration_seconds=seconds,
            error_code=shortened(record.get("error_code")),
        )

    def read_evidence(self, plan: RunPlan, log_tail: str) -> Evidence:
        """The result document; its path is new for each run, so what is there is of this run."""
        document = read_document(plan.run_folder / "result.json")
        if document is None or document.get("command") != "build":
            return Evidence(failure=_failure_in_log(log_tail))
        assets, checks = _records(document, "assets"), _records(document, "checks")
        summary = document.get("summary")
        counts = summary if isinstance(summary, dict) else {}
        return Evidence(
            document=True,
            touched=len(assets) + len(checks),
            warnings=sum(int(counts.get(name) or 0) for name in _WARNING_COUNTS),
            failure=_first_failure(assets, checks),
            nodes=tuple(_telling(assets, checks)),
            summary={"tool": "sqb", **counts},
        )


def _selection(plan: RunPlan, build: SqlBuild) -> list[str]:
    exclude = ["--exclude", *build.exclude] if build.exclude else []
    if not build.select:
        return exclude
    selected = plan.run_folder / "select.txt"
    selected.write_text("".join(f"{text}\n" for text in build.select))
    return ["--select-file", str(selected), *exclude]


def _options(build: SqlBuild) -> list[str]:
    values: dict[str, object] = {
        "--concurrency": build.concurrency,
        "--start-cursor": build.start,
        "--end-cursor": build.end,
        "--max-microbatches": build.max_microbatches,
        "--defer-to": build.defer_to,
        "--defer-sources-to": build.defer_sources_to,
        "--defer-clone-from": build.clone_from,
        "--test-timeout": build.test_timeout,
        "--warehouse": build.warehouse,
    }
    flags = {
        "--full-refresh": build.full_refresh,
        "--fail-fast": build.fail_fast,
        "--no-tests": not build.tests,
        "--no-audits": not build.audits,
        "--no-python": not build.python,
        "--load": build.load == "on",
        "--no-load": build.load == "off",
        "--reload": build.load == "reload",
    }
    given = [part for name, value in values.items() if value is not None for part in (name, str(value))]
    allowed = [f"--allow-{name.replace('_', '-')}" for name in build.allow]
    return [*given, *(name for name, wanted in flags.items() if wanted), *allowed]


def _context(plan: RunPlan) -> str:
    """The correlation; the tool ignores a large or broken value without a word, so it stays small."""
    context = canonical_json({"run": plan.inputs.run_id, "job": plan.inputs.job, "claim": plan.inputs.claim_id})
    return context if len(context.encode()) < _CONTEXT_BYTES else canonical_json({"run": plan.inputs.run_id})


def _status_of_checks(status: NodeStatus, checks: object) -> NodeStatus:
    states = (
        {str(check.get("status")) for check in checks if isinstance(check, dict)} if isinstance(checks, list) else set()
    )
    if status == "succeeded" and states & {"fail", "error", "failed"}:
        return "failed"
    return "warned" if status == "succeeded" and "warn" in states else status


def _records(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = document.get(name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _first_failure(assets: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]) -> Failure | None:
    for asset in assets:
        if asset.get("status") in {"failed", "timeout"}:
            return Failure(shortened(asset.get("error_code")), _named(asset, asset.get("error_message")))
    for check in checks:
        if check.get("passed") is False and check.get("status") not in {"warn", "skipped"}:
            return Failure(
                shortened(check.get("error_code") or check.get("kind")), _named(check, check.get("error_message"))
            )
    return None


def _named(entry: Mapping[str, Any], message: object) -> str | None:
    return shortened(f"{entry.get('name')}: {message or entry.get('status')}")


def _telling(assets: Sequence[Mapping[str, Any]], checks: Sequence[Mapping[str, Any]]) -> Iterator[NodeReport]:
    """What only the document knows: the message of a failure, and the nodes with a failed warn-severity audit."""
    warned = {str(check.get("asset_name")) for check in checks if check.get("status") == "warn"}
    for asset in assets:
        node, seconds = f"{asset.get('kind')}:{asset.get('name')}", (asset.get("duration_ms") or 0) / 1000
        if asset.get("status") == "failed":
            yield NodeReport(
                node=node,
                status="failed",
                duration_seconds=seconds,
                error_code=shortened(asset.get("error_code")),
                message=shortened(asset.get("error_message")),
            )
        elif asset.get("status") == "success" and (asset.get("name") in warned or asset.get("warnings")):
            yield NodeReport(node=node, status="warned", duration_seconds=seconds, message="an audit warned")


def _failure_in_log(log_tail: str) -> Failure | None:
    found = _ERROR_CODE.search(log_tail)
    return Failure(found[1], shortened(found[2])) if found else None
