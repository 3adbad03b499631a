"""Both examples with the real tools: compile, refuse bad input, notice drift, and build."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from chalicelib.kernel.errors import CompileFailed, EmptySelection, InvalidSelection, TidemillError, ToolMissing
from chalicelib.projects.command import verified_nodes
from chalicelib.projects.compilation import Compilation
from chalicelib.projects.compile import compile_project
from chalicelib.projects.verify import compare
from tests.e2e.project_environments import copy_example, environment_for, rows_of

pytestmark = pytest.mark.end_to_end

NOW = datetime(2026, 12, 1, tzinfo=UTC)
HEAD = "from tidemill import Command, Dbt, Job, SqlBuild\n"
TOOLS = ("coffee_sqlbuild", "coffee_dbt")


class Project:
    """A copy of an example and the environment to compile it in."""

    def __init__(self, example: str, folder: Path, python: Path) -> None:
        self.example, self.python, self.folder = example, python, copy_example(example, folder / "project")
        self._work_dir = folder / "work"  # kept, so that dbt parses what changed only

    @property
    def tool_folder(self) -> Path:
        return self.folder / "warehouse" if self.example == "coffee_sqlbuild" else self.folder

    def compile(self, jobs: str | None = None) -> Compilation:
        if jobs is not None:
            (self.folder / "jobs.py").write_text(HEAD + jobs)
        return compile_project(self.folder, target=None, python=self.python, now=NOW, work_dir=self._work_dir)

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.tool_folder / path
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))


@pytest.fixture
def project(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project | None]:
    """Make a project; without a Python for SQLBuild, see that the message says so and give ``None``."""

    def make(example: str, name: str = "one") -> Project | None:
        python = environment_for(example, tmp_path_factory)
        if python is None:
            with pytest.raises(ToolMissing, match="make the project's environment with"):
                Project(example, tmp_path / name, tmp_path / "absent" / "python").compile()
            return None
        return Project(example, tmp_path / name, python)

    return make


Make = Callable[..., Project | None]


@pytest.mark.parametrize(
    ("example", "nodes", "relations"),
    [
        (
            "coffee_sqlbuild",
            ("model:bean_revenue", "model:daily_sales", "model:stg_beans", "model:stg_sales", "seed:beans"),
            tuple(f"coffee.shop.{name}" for name in ("bean_revenue", "beans", "daily_sales", "stg_beans", "stg_sales")),
        ),
        (
            "coffee_dbt",
            (
                *(f"model.coffee_dbt.{name}" for name in ("bean_revenue", "daily_sales", "stg_beans", "stg_sales")),
                "seed.coffee_dbt.beans",
            ),
            tuple(f"coffee.main.{name}" for name in ("bean_revenue", "beans", "daily_sales", "stg_beans", "stg_sales")),
        ),
    ],
)
def test_an_example_compiles_to_the_same_snapshot_in_two_folders(
    project: Make, example: str, nodes: tuple[str, ...], relations: tuple[str, ...]
) -> None:
    one, two = project(example, "one"), project(example, "two")
    if one is None or two is None:
        return
    first, second = one.compile(), two.compile()
    assert first.snapshot_id == second.snapshot_id
    assert first.bundle.documents == second.bundle.documents
    assert str(one.folder) not in first.index.canonical()
    definition = first.index.jobs["coffee"]
    assert tuple(node for node in definition.nodes if not node.startswith("test.")) == nodes
    assert definition.relations == relations
    assert (first.single_writer, first.settle_seconds, first.index.adapter) == (True, 0, "duckdb")
    assert first.connection_fingerprint != second.connection_fingerprint  # two files
    assert first.warnings == ()


@pytest.mark.parametrize("example", TOOLS)
def test_bad_selectors_name_the_job_and_the_selector(project: Make, example: str) -> None:
    made = project(example)
    if made is None:
        return
    build = "SqlBuild" if example == "coffee_sqlbuild" else "Dbt"
    refused: list[tuple[str, type[TidemillError], str]] = [
        (f"{build}(select=['tag:stagging'])", InvalidSelection, r"^broken: .*'?(tag:)?stagging"),
        (f"{build}(select=['colour:red'])", InvalidSelection, "^broken: .*colour"),
        (f"{build}(select=['tag:staging'], exclude=['tag:staging'])", EmptySelection, "^broken: "),
    ]
    for text, error, message in refused:
        with pytest.raises(error, match=message):
            made.compile(f'a = Job(key="broken", build={text})\n')


@pytest.mark.parametrize("example", TOOLS)
def test_selections_are_resolved_and_an_empty_one_may_be_allowed(project: Make, example: str) -> None:
    made = project(example)
    if made is None:
        return
    build = "SqlBuild" if example == "coffee_sqlbuild" else "Dbt"
    jobs = f"""
empty = Job(key="empty", build={build}(select=["tag:staging"], exclude=["tag:staging"]), on_empty="succeed")
marts = Job(key="marts", build={build}(exclude=["tag:staging"]))
above = Job(key="above", build={build}(select=["+daily_sales"]))
varied = Job(key="varied", build={build}(select=["stg_beans"], vars={{"season": "spring"}}))
"""
    found = {key: _written(job.relations) for key, job in made.compile(jobs).index.jobs.items()}
    assert found == {
        "empty": [],
        "marts": ["bean_revenue", "beans", "daily_sales"],
        "above": ["beans", "daily_sales", "stg_beans", "stg_sales"],
        "varied": ["stg_beans"],
    }


def _written(relations: tuple[str, ...]) -> list[str]:
    return [relation.rpartition(".")[2] for relation in relations]


@pytest.mark.parametrize("example", TOOLS)
def test_drift_names_the_nodes_that_differ(project: Make, example: str) -> None:
    made = project(example)
    if made is None:
        return
    published = made.compile()
    pinned = {key: record.drift_key for key, record in published.index.nodes.items()}
    made.edit("models/staging/stg_beans.sql", "price_cents", "price_cents + 0 as price_cents")
    made.edit("seeds/beans.csv", "420", "430")
    drifted = compare(pinned, verified_nodes(published.index.jobs["coffee"]), made.compile())
    assert [(item.node.replace(":", ".").rpartition(".")[2], item.change) for item in drifted] == [
        ("stg_beans", "changed"),
        ("beans", "changed"),
    ]


def test_a_dbt_macro_counts_for_the_models_that_use_it(project: Make) -> None:
    made = project("coffee_dbt")
    assert made is not None
    before = made.compile().index.nodes
    made.edit("macros/revenue_cents.sql", "{{ cups }} * {{ price_cents }}", "({{ cups }}) * ({{ price_cents }})")
    after = made.compile().index.nodes
    changed = [key.rpartition(".")[2] for key in before if before[key].drift_key != after[key].drift_key]
    assert changed == ["bean_revenue", "daily_sales"]


def test_hooks_whose_target_is_unknown_are_named(project: Make) -> None:
    made = project("coffee_dbt")
    assert made is not None
    made.edit(
        "models/marts/daily_sales.sql", "select\n", "{{ config(post_hook='create table extra (a int)') }}\nselect\n"
    )
    made.edit("dbt_project.yml", "models:\n  coffee", 'on-run-end: ["select 1"]\nmodels:\n  coffee')
    warnings = [warning for warning in made.compile().warnings if warning.code == "unclaimed_hook_writes"]
    assert [warning.subject for warning in warnings] == ["model.coffee_dbt.daily_sales", "on-run-start/on-run-end"]


@pytest.mark.parametrize(
    ("example", "path"),
    [("coffee_sqlbuild", "models/marts/daily_sales.sql"), ("coffee_dbt", "models/marts/daily_sales.sql")],
)
def test_a_project_that_does_not_compile_says_why(project: Make, example: str, path: str) -> None:
    made = project(example)
    if made is None:
        return
    made.edit(path, "stg_beans", "stg_beanz")
    with pytest.raises(CompileFailed, match=r"^(sqb|dbt) cannot \w+ the project: .*stg_beanz"):
        made.compile()


@pytest.mark.parametrize(
    ("example", "arguments", "database", "schema"),
    [
        ("coffee_sqlbuild", ("sqb", "build"), "warehouse/coffee.duckdb", "shop"),
        ("coffee_dbt", ("dbt", "build", "--profiles-dir", "."), "coffee.duckdb", "main"),
    ],
)
def test_an_example_builds(project: Make, example: str, arguments: tuple[str, ...], database: str, schema: str) -> None:
    made = project(example)
    if made is None:
        return
    program = made.python.parent / arguments[0]
    built = subprocess.run(
        [str(program), *arguments[1:]], cwd=made.tool_folder, check=False, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stdout
    rows = rows_of(made.python, made.folder / database)
    wanted = {"beans": 4, "stg_beans": 4, "stg_sales": 168, "daily_sales": 8, "bean_revenue": 4}
    assert {name: rows[f"{schema}.{name}"] for name in wanted} == wanted
