"""Real builds that fail half-way, are mended outside the project, and go on where they stopped (10.2, 10.3)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.dev import TERMINAL, Dev, command_project, running
from tests.e2e.project_environments import copy_example, environment_for, rows_of

pytestmark = pytest.mark.end_to_end

JOBS = 'from tidemill import Dbt, Input, Job, SqlBuild\n\ncoffee = Job(key="coffee", build={build}, inputs={inputs}, timeout=300)\n'
ONLY = '{"only": Input(maps_to="option:select")}'

SOURCE = """
sources:
  - name: till_sales
    description: What the till wrote down.
    expression: |
      SELECT sale_id, bean_id, cups, sold_at FROM read_csv('{path}')
"""


class Shop:
    """A copy of an example whose till wrote a file that may be missing."""

    def __init__(self, example: str, folder: Path, python: Path) -> None:
        self.example, self.python, self.folder = example, python, copy_example(example, folder / "shop")
        self.data = folder / "till_sales.csv"
        self.sales = (Path("examples") / "coffee_dbt" / "data" / "till_sales.csv").read_text()
        toml = self.folder / "tidemill.toml"
        toml.write_text(f'python = "{python}"\n' + toml.read_text())
        build = "SqlBuild()" if example == "coffee_sqlbuild" else "Dbt()"
        (self.folder / "jobs.py").write_text(JOBS.format(build=build, inputs=ONLY))
        self._read_the_file()

    def _read_the_file(self) -> None:
        if self.example == "coffee_sqlbuild":
            (self.folder / "warehouse" / "sources" / "till.yml").write_text(SOURCE.format(path=self.data))
            return
        till = self.folder / "models" / "staging" / "till.yml"
        till.write_text(till.read_text().replace("data/till_sales.csv", str(self.data)))
        shutil.rmtree(self.folder / "data")

    @property
    def database(self) -> Path:
        return self.folder / ("warehouse/coffee.duckdb" if self.example == "coffee_sqlbuild" else "coffee.duckdb")


@pytest.fixture(params=["coffee_dbt", "coffee_sqlbuild"])
def shop(request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    python = environment_for(request.param, tmp_path_factory)
    if python is None:
        assert request.param == "coffee_sqlbuild", "every machine that runs these tests has a Python for dbt"
        python = environment_for("coffee_dbt", tmp_path_factory)
        assert python is not None
        return Shop("coffee_dbt", tmp_path, python)
    return Shop(request.param, tmp_path, python)


def statuses(dev: Dev, run_id: str) -> dict[str, str]:
    """The nodes of a run by the last part of their name that people use."""
    return {_name(node["node"]): node["status"] for node in dev.cli("runs", "nodes", run_id)["items"]}


def _name(node: str) -> str:
    return node.partition(":")[2] or node.split(".")[2]


def ended(dev: Dev, run_id: str, state: str) -> dict[str, Any]:
    reached = dev.wait_state(run_id, *TERMINAL)
    run: dict[str, Any] = dev.cli("runs", "show", run_id)
    log = "".join(part["text"] for part in dev.cli("runs", "logs", run_id)["items"])
    assert reached == state, f"{run}\n{log}"
    return run


def test_what_failed_is_built_when_it_is_mended_and_the_rest_is_carried(shop: Shop) -> None:
    with running(shop.folder) as dev:
        dev.published()
        first = dev.request("coffee")
        ended(dev, first, "failed")
        before = statuses(dev, first)
        assert (before["beans"], before["stg_beans"], before["stg_sales"]) == ("succeeded", "succeeded", "failed")
        done = {node for node, status in before.items() if status == "succeeded"}
        shop.data.write_text(shop.sales)
        asked = dev.cli("runs", "rerun", first, "--from-failed", "--wait")["run"]
        after = statuses(dev, asked["run_id"])
        assert (asked["state"], asked["rerun_of"], asked["origin"]) == ("succeeded", first, "rerun")
        assert {node for node, status in after.items() if status == "carried"} == done
        assert {node for node, status in after.items() if status == "succeeded"} >= {
            "stg_sales", "daily_sales", "bean_revenue",
        }  # fmt: skip
        assert set(after.values()) == {"carried", "succeeded"}
        log = "".join(part["text"] for part in dev.cli("runs", "logs", asked["run_id"])["items"])
        assert "stg_beans" not in log
        refused = dev.cli("runs", "rerun", asked["run_id"], "--from-failed", expect=(5,))
        assert refused["error"]["code"] == "nothing_to_rerun"
    built = rows_of(shop.python, shop.database)
    assert min(rows for table, rows in built.items() if table.endswith(("daily_sales", "bean_revenue"))) > 0


def test_a_select_input_builds_the_named_nodes_alone(shop: Shop) -> None:
    """Not the tests beside them, and not the folder that is called like one of them."""
    wanted = ["beans", "stg_beans"]
    if shop.example == "coffee_dbt":
        (shop.folder / "models" / "staging.sql").write_text("select 1 as one\n")
        wanted.append("staging")
    with running(shop.folder) as dev:
        dev.published()
        run_id = dev.request("coffee", "--input", f"only={' '.join(wanted)}")
        ended(dev, run_id, "succeeded")
        assert statuses(dev, run_id) == dict.fromkeys(wanted, "succeeded")


FLAKY = """
import sys
from pathlib import Path
from tidemill import Command, Job, Retry

flaky = Job(
    key="flaky",
    build=Command(argv=[sys.executable, "-c", "import sys, pathlib; sys.exit(not pathlib.Path('mended').exists())"]),
    writes=["db.main.flaky"],
    timeout=60,
    retries=Retry(max=3, backoff=1, on=("failed",)),
)
"""


def test_a_failed_run_is_retried_by_itself_until_it_succeeds(tmp_path: Path) -> None:
    folder = command_project(tmp_path / "plain", FLAKY)
    with running(folder) as dev:
        dev.published()
        first = dev.request("flaky")
        ended(dev, first, "failed")
        (folder / "mended").touch()
        run = dev.cli("runs", "show", first)
        while run["retried_by"] is not None:
            dev.wait_state(run["retried_by"], *TERMINAL, seconds=120)
            run = dev.cli("runs", "show", run["retried_by"])
        assert (run["state"], run["origin"], run["retry_number"] >= 1) == ("succeeded", "retry", True)
