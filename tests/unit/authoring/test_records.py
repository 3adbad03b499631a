from __future__ import annotations

import sys

import pytest
from pydantic import ValidationError

import chalicelib
from chalicelib import Command, Dbt, Input, Job, Pool, Retry, Schedule, SensorResult, SourceSensor, SqlBuild, sensor


def problem(make: object) -> str:
    with pytest.raises(ValidationError) as caught:
        make()  # type: ignore[operator]
    first = caught.value.errors()[0]
    return ".".join(str(part) for part in first["loc"]) + ": " + first["msg"]


def test_the_example_of_the_specification_is_a_job() -> None:
    job = Job(
        key="orders",
        build=SqlBuild(select=["tag:orders+"], exclude=["path:models/scratch"], vars={"mode": "daily"}),
        schedule=Schedule(cron="15 6 * * 1-5", timezone="Europe/Berlin"),
        sensors=[SourceSensor(sources=["raw_orders"])],
        writes="compiled",
        concurrency=1,
        pools=[Pool(name="warehouse", weight=2)],
        worker="lambda",
        timeout=600,
        retries=Retry(max=2, on=("launch_failed", "lost")),
    )
    assert job.schedules == (Schedule(cron="15 6 * * 1-5", timezone="Europe/Berlin"),)
    assert isinstance(job.build, SqlBuild)
    assert job.build.select == ("tag:orders+",)
    assert job.timeout_seconds() == 600


def test_records_are_frozen_and_closed() -> None:
    retry = Retry()
    with pytest.raises(ValidationError):
        retry.max = 3
    assert problem(lambda: Retry(maximum=3)) == "maximum: Extra inputs are not permitted"  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Job(key="Orders", build=Dbt()), "key: String should match pattern"),
        (
            lambda: Job(key="a", build="dbt"),  # type: ignore[arg-type]
            "build: Value error, give SqlBuild or Dbt or Command, not str",
        ),
        (
            lambda: Job(key="a", build=Dbt(select="tag:x")),
            'select: Value error, give a list of texts, such as ["tag:x"]',
        ),
        (lambda: Job(key="a", build=Dbt(select=["--full-refresh"])), "would be read as an option"),
        (lambda: Job(key="a", build=Dbt(), worker="lambda", timeout=841), "timeout: at most 840 seconds"),
        (lambda: Job(key="a", build=Command(argv=["x"])), "writes: a Command must say what it writes"),
        (lambda: Job(key="a", build=Command(argv=["x"]), writes="compiled"), "a Command has no compiled relations"),
        (lambda: Job(key="a", build=Dbt(), concurrency=0), "concurrency: Input should be greater than or equal to 1"),
        (lambda: Job(key="a", build=Dbt(), concurrency=True), "concurrency: Value error, give a whole number"),
        (lambda: Job(key="a", build=Dbt(), pools=[Pool(name="p"), Pool(name="p")]), "a pool is named twice"),
        (lambda: Pool(name="p", weight=0), "weight: Input should be greater than or equal to 1"),
        (
            lambda: Schedule(cron="* * * * *"),  # type: ignore[call-arg]
            "timezone: Field required",
        ),
        (
            lambda: Schedule(cron="* * * * *", timezone="UTC", dst="skip"),  # type: ignore[arg-type]
            "dst: Input should be 'cron'",
        ),
        (
            lambda: Retry(on=("drift",)),  # type: ignore[arg-type]
            "on.0: Input should be 'launch_failed', 'lost' or 'failed'",
        ),
        (lambda: Input(type="choice"), 'choices: give them with type="choice"'),
        (lambda: Input(maps_to="option:target"), "maps_to: use var, var:NAME"),
        (lambda: Input(maps_to="option:full_refresh"), "maps_to: option:full_refresh needs type='boolean'"),
        (lambda: Input(type="integer", default_from="scheduled_for"), "default_from: an occurrence fits"),
        (
            lambda: Job(key="a", build=Command(argv=["x"]), writes=[], inputs={"n": Input()}),
            "inputs.n.maps_to: a Command takes its inputs from the environment",
        ),
        (
            lambda: Job(key="a", build=Dbt(), inputs={"n": Input(type="integer", maps_to="cursor:start")}),
            "inputs.n.maps_to: only SqlBuild has typed cursors",
        ),
    ],
)
def test_a_wrong_field_is_named(make: object, text: str) -> None:
    assert text in problem(make)


def test_what_writes_means() -> None:
    assert Job(key="a", build=Dbt()).effective_writes().compiled
    listed = Job(key="a", build=Command(argv=["x"]), writes=["a.b.c"]).effective_writes()
    assert (listed.compiled, listed.also) == (False, ("a.b.c",))
    assert Job(key="a", build=Command(argv=["x"]), writes=[]).effective_writes().also == ()


def test_the_default_time_out_follows_the_worker() -> None:
    assert Job(key="a", build=Dbt(), worker="lambda").timeout_seconds() == 600
    assert Job(key="a", build=Dbt()).timeout_seconds() == 3_600


def test_the_sensor_decorator_keeps_the_function_callable() -> None:
    @sensor("new-files", interval=120)
    def new_files(context: object) -> SensorResult:
        return SensorResult(requests={"file-1": {"path": "a.csv"}}, cursor=1)

    assert new_files(None).requests == {"file-1": {"path": "a.csv"}}
    assert (new_files.name, new_files.interval, new_files.timeout) == ("new-files", 120, 60)
    assert new_files.reference().endswith(":test_the_sensor_decorator_keeps_the_function_callable.<locals>.new_files")


def test_every_public_name_can_be_had_and_a_wrong_one_cannot() -> None:
    assert {name: getattr(chalicelib, name) for name in chalicelib.__all__}.keys() == set(chalicelib.__all__)
    assert set(chalicelib.__all__) <= set(dir(chalicelib))
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        _ = chalicelib.Jobs


def test_importing_the_package_does_not_load_the_records() -> None:
    import subprocess

    code = "import sys, chalicelib; assert not any('pydantic' in name for name in sys.modules); chalicelib.Job"
    subprocess.run([sys.executable, "-c", code], check=True)
