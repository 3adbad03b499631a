"""The bare wheel beside sqlbuild on 3.12+ and beside dbt on 3.11+: base dependencies are enough to compile."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from chalicelib.kernel.errors import ToolMissing
from chalicelib.projects.interpreters import project_python
from chalicelib.projects.project_file import load_project_file
from tests.e2e.project_environments import copy_example, environment_for

pytestmark = pytest.mark.end_to_end

# Runs inside the project's environment, from the installed wheel alone: host and project share the interpreter.
_COMPILE = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
import tidemill
from tidemill.projects.bundle import read_bundle, write_bundle
from tidemill.projects.compile import compile_project

folder, out = map(Path, sys.argv[1:])
made = compile_project(folder, target=None, python=Path(sys.executable), now=datetime.now(UTC), work_dir=out / "work")
write_bundle(made, out / "bundle")
foreign = [name for name in ("boto3", "psycopg", "chalice", "httpx", "typer", "rich") if name in sys.modules]
answer = {"version": tidemill.__version__, "jobs": sorted(made.index.jobs), "tool": made.index.tool, "foreign": foreign,
          "same": read_bundle(out / "bundle").snapshot_id == made.snapshot_id, "home": tidemill.__file__}
print(json.dumps(answer))
"""
_MISSING = "import importlib.util as u; print([n for n in ('boto3', 'psycopg', 'chalice', 'httpx', 'typer', 'rich') if u.find_spec(n)])"


@pytest.mark.parametrize(
    ("example", "tool", "jobs"),
    [("coffee_sqlbuild", "sqb", ["coffee", "staging"]), ("coffee_dbt", "dbt", ["coffee", "export"])],
)
def test_the_bare_wheel_compiles_an_example(
    example: str, tool: str, jobs: list[str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = copy_example(example, tmp_path / example)
    python = environment_for(example, tmp_path_factory)
    if python is None:
        with pytest.raises(ToolMissing, match=r"there is no interpreter at .*\.venv/bin/python"):
            project_python(load_project_file(folder), None)
        return
    answer = json.loads(_run(python, "-c", _COMPILE, str(folder), str(tmp_path / "out")).splitlines()[-1])
    assert {key: answer[key] for key in ("tool", "jobs", "foreign", "same")} == {
        "tool": tool, "jobs": jobs, "foreign": [], "same": True,
    }  # fmt: skip
    assert answer["version"] != "0+unknown"
    assert Path(answer["home"]).is_relative_to(python.parent.parent)


def test_the_environments_hold_no_extra(tmp_path_factory: pytest.TempPathFactory) -> None:
    for example in ("coffee_sqlbuild", "coffee_dbt"):
        python = environment_for(example, tmp_path_factory)
        if python is not None:
            assert _run(python, "-c", _MISSING).strip() == "[]"


def _run(python: Path, *arguments: str) -> str:
    done = subprocess.run([str(python), "-P", *arguments], check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout
