"""Runs in the project's own interpreter: one dbt parse per group, then every selection against that manifest.

``python -P -m tidemill.projects.dbt_session REQUEST RESULT``. dbt takes seconds to start and milliseconds to resolve
a selection once a manifest is in memory, so all of a compile happens in one process. The request is
``{"project_dir", "profiles_dir", "groups": [{"target", "vars", "target_path", "log_path", "selections":
[{"job", "arguments"}]}]}``; the answer has one entry per group, or ``error``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Every group resolved; the first that does not parse ends the session with its error."""
    groups = []
    for group in request["groups"]:
        resolved = _group(request, group)
        groups.append(resolved)
        if "error" in resolved:
            break
    return {"groups": groups}


def _group(request: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    from dbt.cli.main import dbtRunner  # type: ignore[import-not-found]  # project's own environment

    options = _options(request, group)
    parsed = dbtRunner().invoke(["--quiet", "--no-use-colors", "parse", *options])
    if not parsed.success:
        return {"error": _text(parsed)}
    connection = _connection(request, group)
    selections = {
        wanted["job"]: _selection(parsed.result, [*options, *wanted["arguments"]]) for wanted in group["selections"]
    }
    return {"connection": connection, "selections": selections}


def _options(request: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    return [
        "--project-dir", request["project_dir"],
        "--profiles-dir", request["profiles_dir"],
        "--target", group["target"],
        "--vars", json.dumps(group["vars"], sort_keys=True),
        "--target-path", group["target_path"],
        "--log-path", group["log_path"],
    ]  # fmt: skip


def _selection(manifest: Any, arguments: Sequence[str]) -> dict[str, Any]:
    from dbt.cli.main import dbtRunner

    unmatched: list[str] = []

    def note(event: Any) -> None:
        if event.info.name == "NoNodesForSelectionCriteria":
            unmatched.append(str(event.data.spec_raw))

    runner = dbtRunner(manifest=manifest, callbacks=[note])
    listed = runner.invoke(
        ["--quiet", "--no-use-colors", "ls", *arguments, "--output", "json", "--output-keys", "unique_id"]
    )
    if not listed.success:
        return {"error": _text(listed)}
    return {"nodes": [json.loads(line)["unique_id"] for line in listed.result or []], "unmatched": unmatched}


def _connection(request: Mapping[str, Any], group: Mapping[str, Any]) -> dict[str, Any]:
    """Adapter, account or host or path, database and schema; nothing that is secret."""
    from dbt.config.runtime import load_profile  # type: ignore[import-not-found]  # project's own environment

    credentials = load_profile(request["project_dir"], dict(group["vars"]), None, group["target"]).credentials
    path = getattr(credentials, "path", None)
    place = path if credentials.type == "duckdb" else getattr(credentials, "unique_field", None)
    return {
        "adapter": credentials.type,
        "place": None if place is None else str(place),
        "database": credentials.database,
        "schema": credentials.schema,
    }


def _text(result: Any) -> str:
    return str(result.exception) if result.exception is not None else "dbt gave no reason"


def main(arguments: Sequence[str]) -> None:
    """Answer the request in the first file into the second."""
    request, result = map(Path, arguments)
    answered = answer(json.loads(request.read_text(encoding="utf-8")))
    result.write_text(json.dumps(answered), encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # an adapter may have left threads behind


if __name__ == "__main__":
    main(sys.argv[1:])
