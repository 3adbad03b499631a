"""Runs in the project's own interpreter: import the modules, find the jobs, write the answer to a file.

``python -P -m tidemill.projects.collector RESULT PROJECT_DIR MODULE...``. The answer goes to a file because user
code may print; the process ends at once afterwards because user code may have started threads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from ..authoring.collect import collect_modules
from ..authoring.naming import check_run_sensors
from ..kernel.errors import TidemillError
from .drafts import Collected, CollectedError, draft_of

_TOOLS = ("sqlbuild", "tidemill")


def collect(modules: Sequence[str], project_dir: Path) -> Collected:
    """The jobs of the modules, or the error that they cause, with the versions of what is installed."""
    packages = installed_tools()
    try:
        drafts = tuple(draft_of(found) for found in collect_modules(modules, project_dir))
        check_run_sensors({draft.job: draft.watches for draft in drafts})
    except TidemillError as problem:
        fields = tuple((field.field, field.code, field.message) for field in problem.fields)
        return Collected(
            packages=packages, error=CollectedError(code=problem.code, detail=problem.detail, fields=fields)
        )
    return Collected(packages=packages, jobs=drafts)


def installed_tools() -> dict[str, str]:
    """Versions of the tools in this interpreter: sqlbuild, tidemill, dbt-core and its adapters."""
    found = {}
    for distribution in distributions():
        name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
        if name in _TOOLS or name.startswith("dbt-"):
            found[name] = distribution.version
    return found


def main(arguments: Sequence[str]) -> None:
    """Collect and write; ``arguments`` are RESULT PROJECT_DIR MODULE..."""
    result, project_dir, *modules = arguments
    folder = Path(project_dir).resolve()
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # collecting leaves no trace in the project; our own imports are done
    answer = collect(modules, folder)
    Path(result).write_text(answer.model_dump_json(), encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
