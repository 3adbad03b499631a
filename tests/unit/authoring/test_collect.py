from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chalicelib import Command, Dbt, Job, PlatformSensor, RunSensor, Schedule, SourceSensor, sensor
from chalicelib.authoring.collect import FoundJob, collect_modules
from chalicelib.authoring.naming import check_run_sensors, named_triggers
from chalicelib.authoring.triggers import SensorResult
from chalicelib.kernel.errors import InvalidDeclaration

Collect = Callable[..., tuple[FoundJob, ...]]
_NUMBERS = itertools.count()
_HEAD = "from chalicelib import Command, Dbt, Job\n"


@pytest.fixture
def collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Collect]:
    """Write modules (``NAME`` in a text becomes a fresh name) and collect the first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names: list[str] = []

    def run(*texts: str) -> tuple[FoundJob, ...]:
        name = f"jobs_{next(_NUMBERS)}"
        names.extend([name, f"{name}_other"])
        for suffix, text in zip(("", "_other"), texts, strict=False):
            (tmp_path / f"{name}{suffix}.py").write_text(_HEAD + text.replace("NAME", name))
        return collect_modules([name], tmp_path)

    yield run
    for name in names:
        sys.modules.pop(name, None)


def test_jobs_are_found_in_containers_to_any_depth(collect: Collect) -> None:
    found = collect("""
from dataclasses import dataclass
@dataclass
class Group:
    inner: object
def job(key): return Job(key=key, build=Dbt())
one = job("one")
many = [job("two"), (job("three"), {"x": Group({"deep": [job("four")]})})]
_hidden = job("hidden")
""")
    assert [item.job.key for item in found] == ["four", "one", "three", "two"]
    assert found[0].place.endswith("many[1][1]['x'].inner['deep'][0]")


def test_all_decides_what_is_exported(collect: Collect) -> None:
    found = collect('__all__ = ["_a"]\n_a = Job(key="a", build=Dbt())\nb = Job(key="b", build=Dbt())\n')
    assert [item.job.key for item in found] == ["a"]


def test_one_object_under_several_names_is_one_job(collect: Collect) -> None:
    assert len(collect('a = Job(key="a", build=Dbt())\nb = [a, a]\n')) == 1


def test_two_jobs_with_one_key_name_both_places(collect: Collect) -> None:
    with pytest.raises(
        InvalidDeclaration, match=r"two jobs have the key 'a': .*: first and .*: second\[0\]; rename one"
    ):
        collect('first = Job(key="a", build=Dbt())\nsecond = [Job(key="a", build=Dbt())]\n')


def test_a_container_that_contains_itself_ends_the_walk(collect: Collect) -> None:
    assert [item.job.key for item in collect('a = [Job(key="a", build=Dbt())]\na.append(a)\n')] == ["a"]


def test_a_module_that_raises_is_named_with_its_line(collect: Collect) -> None:
    with pytest.raises(InvalidDeclaration, match=r"jobs_\d+\.py:3: ValueError: no such warehouse"):
        collect('x = 1\nraise ValueError("no such warehouse")\n')


def test_leaving_the_process_is_an_error_too(collect: Collect) -> None:
    with pytest.raises(InvalidDeclaration, match="SystemExit: 3"):
        collect("import sys\nsys.exit(3)\n")


def test_a_syntax_error_is_named_with_its_line(collect: Collect) -> None:
    with pytest.raises(InvalidDeclaration, match=r"jobs_\d+\.py:2: SyntaxError"):
        collect("job = = 1\n")


def test_a_wrong_record_is_named_with_its_field(collect: Collect) -> None:
    with pytest.raises(InvalidDeclaration, match=r"jobs_\d+\.py:2: Job: concurrency: Input should be") as caught:
        collect('a = Job(key="a", build=Dbt(), concurrency=0)\n')
    assert caught.value.fields[0].field == "concurrency"


def test_an_unknown_module_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDeclaration, match="there is no module 'no_such_jobs'"):
        collect_modules(["no_such_jobs"], tmp_path)


def test_a_failed_import_leaves_no_half_made_module(collect: Collect, tmp_path: Path) -> None:
    with pytest.raises(InvalidDeclaration):
        collect("import NAME_other\nimport json.tool\nraise RuntimeError\n", "value = 1\n")
    left = [name for name in sys.modules if str(tmp_path) in str(getattr(sys.modules[name], "__file__", ""))]
    assert left == []
    assert "json" in sys.modules


def test_after_a_failed_import_the_next_attempt_sees_the_repaired_file(collect: Collect, tmp_path: Path) -> None:
    with pytest.raises(InvalidDeclaration):
        collect("raise RuntimeError\n")
    module = next(tmp_path.glob("jobs_*.py"))
    module.write_text(_HEAD + 'a = Job(key="repaired", build=Command(argv=["x"]), writes=[])\n')
    assert [item.job.key for item in collect_modules([module.stem], tmp_path)] == ["repaired"]


def test_a_wrong_name_in_all_is_named(collect: Collect) -> None:
    with pytest.raises(InvalidDeclaration, match="__all__ names 'b'"):
        collect('__all__ = ["b"]\n')


@sensor("files")
def files(context: object) -> SensorResult:
    return SensorResult(skip_reason="none")


def test_shorthand_names() -> None:
    job = Job(
        key="orders",
        build=Dbt(),
        schedule=[
            Schedule(cron="@daily", timezone="UTC"),
            Schedule(cron="@hourly", timezone="UTC", name="hourly"),
        ],
        sensors=[
            SourceSensor(sources=["raw"]),
            RunSensor(jobs=["other"]),
            PlatformSensor(conditions=["run_lost"]),
            files,
        ],
    )
    assert [named.name for named in named_triggers(job)] == [
        "orders/schedule", "orders/hourly", "orders/source", "orders/run", "orders/platform", "orders/files",
    ]  # fmt: skip


def test_a_name_does_not_change_with_the_cron_text() -> None:
    """S2: state and history carry over."""
    names = {
        named_triggers(Job(key="a", build=Dbt(), schedule=Schedule(cron=cron, timezone=zone)))[0].name
        for cron, zone in (("@daily", "UTC"), ("5 4 * * *", "Europe/Berlin"))
    }
    assert names == {"a/schedule"}


def test_two_unnamed_triggers_of_a_kind_ask_for_names() -> None:
    daily = Schedule(cron="@daily", timezone="UTC")
    with pytest.raises(InvalidDeclaration, match=r"a.schedule: 2 unnamed triggers of the kind schedule"):
        named_triggers(Job(key="a", build=Dbt(), schedule=[daily, daily]))


def test_two_triggers_with_one_name_are_refused() -> None:
    daily = Schedule(cron="@daily", timezone="UTC", name="x")
    with pytest.raises(InvalidDeclaration, match="two triggers are called 'a/x'"):
        named_triggers(Job(key="a", build=Dbt(), schedule=[daily, daily]))


@pytest.mark.parametrize(
    ("watched", "text"),
    [
        ({"a": ["a"]}, "a.sensors: a run sensor cannot watch its own job"),
        ({"a": ["b"]}, "watches 'b', which is no job"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "the run sensors form a cycle"),
    ],
)
def test_run_sensors_that_cannot_work_are_refused(watched: dict[str, list[str]], text: str) -> None:
    with pytest.raises(InvalidDeclaration, match=text):
        check_run_sensors(watched)


def test_a_chain_of_run_sensors_is_fine() -> None:
    check_run_sensors({"a": [], "b": ["a"], "c": ["a", "b"]})
    assert Job(key="a", build=Command(argv=["x"]), writes=[]).sensors == ()
