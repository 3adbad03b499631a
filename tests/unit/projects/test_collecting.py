"""The collector runs in this very interpreter, where tidemill is installed under its own name."""

from __future__ import annotations

import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chalicelib.kernel.errors import (
    CompileFailed,
    InvalidDeclaration,
    InvalidSchedule,
    ToolMissing,
    exit_code_of,
)
from chalicelib.projects.compilation import Compilation
from chalicelib.projects.compile import compile_project
from chalicelib.projects.processes import scrubbed_environment

NOW = datetime(2026, 12, 1, tzinfo=UTC)
HEAD = "from tidemill import Command, Dbt, Input, Job, RunSensor, Schedule, SourceSensor, SqlBuild\n"
ONE = 'a = Job(key="a", build=Command(argv=["true"]), writes=[], %s)\n'


def compiled(
    folder: Path, jobs: str, *, targets: str = "[targets.dev]\n", target: str | None = None, python: Path | None = None
) -> Compilation:
    (folder / "tidemill.toml").write_text('name = "shop"\nmodules = ["jobs"]\n' + targets)
    (folder / "jobs.py").write_text(HEAD + jobs)
    return compile_project(
        folder, target=target, python=python or Path(sys.executable), now=NOW, work_dir=folder / ".work"
    )


def test_printing_and_noise_do_not_break_the_answer(tmp_path: Path) -> None:
    noise = "import os, sys, threading, time\nprint('{}')\nos.close(1)\nsys.stderr.write('x' * 100_000)\n"
    stuck = "threading.Thread(target=lambda: time.sleep(600)).start()\n"
    made = compiled(tmp_path, noise + stuck + ONE % 'schedule=Schedule(cron="@daily", timezone="UTC")')
    assert made.index.tool == "command"
    assert [trigger.name for trigger in made.index.jobs["a"].triggers] == ["a/schedule"]
    assert (made.warehouse, made.connection_fingerprint) == ("shop/dev", None)


def test_two_folders_give_one_snapshot(tmp_path: Path) -> None:
    ids = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ids.add(compiled(tmp_path / name, ONE % "timeout=5").snapshot_id)
    assert len(ids) == 1


def test_no_jobs_needs_no_interpreter(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text('name = "shop"\njobs = []\n[targets.dev]\n')
    made = compile_project(tmp_path, target=None, python=None, now=NOW, work_dir=tmp_path / ".work")
    assert (made.index.jobs, made.index.nodes, made.python) == ({}, {}, None)


@pytest.mark.parametrize(
    ("jobs", "error", "text"),
    [
        ("raise KeyError('warehouse')\n", InvalidDeclaration, r"jobs\.py:2: KeyError: 'warehouse'"),
        ("import no_such_package\n", InvalidDeclaration, r"jobs\.py:2: ModuleNotFoundError: .*no_such_package"),
        ("import os\nos._exit(9)\n", CompileFailed, "ended with code 9 and no answer"),
        (ONE % "worker='lambda', timeout=900", InvalidDeclaration, r"jobs\.py:2: Job: timeout: at most 840"),
        (
            ONE % "" + "b = [" + (ONE % "").removeprefix("a = ").strip() + "]\n",
            InvalidDeclaration,
            "two jobs have the key",
        ),
        (ONE % "schedule=Schedule(cron='0 0 30 2 *', timezone='UTC')", InvalidSchedule, r"a/schedule \(jobs: a\): "),
        (ONE % "schedule=Schedule(cron='@daily', timezone='Europe/Brusels')", InvalidSchedule, "timezone: .*Brusels"),
        (ONE % "sensors=[RunSensor(jobs=['b'])]", InvalidDeclaration, "watches 'b', which is no job"),
        (ONE % "targets=['prod']", InvalidDeclaration, r"a\.targets: tidemill\.toml has no \[targets\.prod\]"),
        (
            ONE % "inputs={'n': Input(type='integer', default='x', maps_to='env')}",
            InvalidDeclaration,
            r"a\.inputs\.n\.default",
        ),
        (
            'a = Job(key="a", build=Command(argv=["true"], cwd=".."), writes=[])\n',
            InvalidDeclaration,
            r"a\.build\.cwd: '\.\.' is no folder of the project",
        ),
        (
            'a = Job(key="a", build=Dbt())\nb = Job(key="b", build=SqlBuild())\n',
            InvalidDeclaration,
            "one project uses one tool, but 'b' is an SqlBuild and 'a' a Dbt job",
        ),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, jobs: str, error: type[Exception], text: str) -> None:
    """S1: nothing is made of it."""
    with pytest.raises(error, match=text) as caught:
        compiled(tmp_path, jobs)
    assert exit_code_of(caught.value) == 2  # type: ignore[arg-type]


def test_an_interpreter_without_the_tool_is_named_with_the_command(tmp_path: Path) -> None:
    for jobs, package in (("Dbt()", "dbt-core<1.12"), ("SqlBuild()", "sqlbuild")):
        with pytest.raises(ToolMissing, match=r"has no \w+; install it with: ") as caught:
            compiled(tmp_path, f'a = Job(key="a", build={jobs})\n')
        assert f"{sys.executable} -m pip install " in caught.value.detail
        assert package in caught.value.detail


def test_an_interpreter_without_tidemill_is_named_with_the_command(tmp_path: Path) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -S -P "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(
        ToolMissing, match=r"bare-python has no tidemill; install it with: .*bare-python -m pip install"
    ):
        compiled(tmp_path, ONE % "", python=bare)


def test_a_project_without_an_environment_says_how_to_make_one(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text('name = "shop"\nmodules = ["jobs"]\n[targets.dev]\n')
    with pytest.raises(ToolMissing, match=r"there is no interpreter at .*\.venv/bin/python .*python3 -m venv"):
        compile_project(tmp_path, target=None, python=None, now=NOW, work_dir=tmp_path / ".work")


def test_an_interpreter_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken-python"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(CompileFailed, match=r"broken-python cannot be started: Exec format error"):
        compiled(tmp_path, ONE % "", python=broken)


def test_jobs_may_be_limited_to_targets(tmp_path: Path) -> None:
    targets = "default_target = 'dev'\n[targets.dev]\n[targets.prod]\nwarehouse = 'w'\n"
    jobs = ONE % "targets=['prod']" + 'b = Job(key="b", build=Command(argv=["true"]), writes=[])\n'
    assert set(compiled(tmp_path, jobs, targets=targets).index.jobs) == {"b"}
    prod = compiled(tmp_path, jobs, targets=targets, target="prod")
    assert (set(prod.index.jobs), prod.warehouse) == ({"a", "b"}, "w")


def test_sensors_are_stored_and_said_to_be_unevaluated(tmp_path: Path) -> None:
    made = compiled(tmp_path, ONE % "sensors=[SourceSensor(sources=['raw'])]")
    assert [(warning.code, warning.subject) for warning in made.warnings] == [("sensor_not_evaluated", "a/source")]
    assert made.warnings[0].message.endswith("stored; not evaluated by this release yet")
    assert made.index.jobs["a"].triggers[0].spec == {"sources": ["raw"], "fire_on_first": False, "interval": 600}


def test_a_fixed_offset_is_warned_about(tmp_path: Path) -> None:
    made = compiled(tmp_path, ONE % "schedule=Schedule(cron='@daily', timezone='EST')")
    assert [(warning.code, warning.subject) for warning in made.warnings] == [("schedule", "a/schedule")]


def test_the_project_sees_no_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "TIDEMILL_TOKEN", "GITHUB_TOKEN", "PYTHONPATH"):
        monkeypatch.setenv(name, "secret-value")
    made = compiled(
        tmp_path,
        "import os\nseen = sorted(name for name, value in os.environ.items() if value == 'secret-value')\n"
        'a = Job(key="a", build=Command(argv=["true", *seen]), writes=[])\n',
    )
    assert made.index.jobs["a"].build.model_dump()["argv"] == ("true",)


def test_variables_of_the_tools_stay() -> None:
    kept = {"DBT_ENV_SECRET_TOKEN": "a", "SQLBUILD_HOME": "b", "PATH": "c", "TOKENIZER": "d"}
    assert scrubbed_environment({**kept, "aws_profile": "x", "NPM_TOKEN": "y", "VIRTUAL_ENV": "z"}) == kept
