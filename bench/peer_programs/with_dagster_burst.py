"""Dagster on Postgres: the daemon with its code server, one schedule and one job of one op for each run."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg2
from services import BINARIES, burst, service, wait_for

JOBS = """
import subprocess

from dagster import DefaultScheduleStatus, Definitions, ScheduleDefinition, in_process_executor, job, op


@op
def no_op():
    subprocess.run(["/bin/true"], check=True)


def one(place):
    @job(name=f"job{{place:03}}", executor_def=in_process_executor)
    def made():
        no_op()

    return made


jobs = [one(place) for place in range({count})]
schedules = [
    ScheduleDefinition(
        job=made, cron_schedule="{minute} {hour} * * *", execution_timezone="UTC", default_status=DefaultScheduleStatus.RUNNING
    )
    for made in jobs
]
definitions = Definitions(jobs=jobs, schedules=schedules)
"""
INSTANCE = """
storage:
  postgres:
    postgres_url: "{url}"
telemetry:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: {runs}
"""
FINISHED = "SELECT end_time FROM runs WHERE status IN ('SUCCESS', 'FAILURE') AND end_time IS NOT NULL"


def prepare(settings):
    text = INSTANCE.format(
        url=settings["url"].replace("postgresql:", "postgresql+psycopg2:", 1), runs=settings["parallel"]
    )
    Path("dagster.yaml").write_text(text)
    return partial(start, settings, {"DAGSTER_HOME": settings["folder"]})


def start(settings, environment, due):
    Path("jobs.py").write_text(JOBS.format(count=settings["count"], minute=due.minute, hour=due.hour))
    Path("workspace.yaml").write_text("load_from:\n  - python_file: jobs.py\n")
    database = psycopg2.connect(settings["url"])
    database.autocommit = True

    def rows(statement):
        with database.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]

    def known():
        return rows("SELECT to_regclass('instigators') IS NOT NULL")[0] and rows("SELECT count(*) FROM instigators")[0]

    with ExitStack() as services:
        services.enter_context(
            service("daemon", [BINARIES / "dagster-daemon", "run", "-w", "workspace.yaml"], environment)
        )
        wait_for(lambda: known() == settings["count"], settings["start_seconds"], "the schedules to be known")
        yield lambda: [float(end) - due.timestamp() for end in rows(FINISHED)]
    database.close()


burst(prepare)
