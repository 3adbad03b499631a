"""Prefect on Postgres: a server, a process worker, and one deployment with a cron schedule for each run."""

import asyncio
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import asyncpg
from services import BINARIES, answers, burst, run, service, wait_for

FLOW = """
import subprocess

from prefect import flow


@flow
def no_op():
    subprocess.run(["/bin/true"], check=True)
"""
DEPLOY = """
from prefect import flow

made = flow.from_source(source="{folder}", entrypoint="flows.py:no_op")
for place in range({count}):
    made.deploy(
        name=f"job{{place:03}}", work_pool_name="burst", cron="{minute} {hour} * * *", print_next_steps=False, ignore_warnings=True
    )
"""
KNOWN = "SELECT count(*) FROM flow_run WHERE expected_start_time = $1"
FINISHED = """
SELECT extract(epoch FROM end_time - expected_start_time) FROM flow_run
WHERE expected_start_time = $1 AND state_type IN ('COMPLETED', 'FAILED', 'CRASHED')
"""


def prepare(settings):
    environment = {
        "PREFECT_HOME": settings["folder"],
        "PREFECT_API_URL": f"http://127.0.0.1:{settings['port']}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": settings["url"].replace("postgresql:", "postgresql+asyncpg:", 1),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "DO_NOT_TRACK": "1",
    }
    Path("flows.py").write_text(FLOW)
    return partial(start, settings, environment)


def start(settings, environment, due):
    prefect = BINARIES / "prefect"

    def rows(statement):
        async def read():
            connection = await asyncpg.connect(settings["url"])
            try:
                return [row[0] for row in await connection.fetch(statement, due)]
            finally:
                await connection.close()

        return asyncio.run(read())

    text = DEPLOY.format(folder=settings["folder"], count=settings["count"], minute=due.minute, hour=due.hour)
    Path("deploy.py").write_text(text)
    with ExitStack() as services:
        server = [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(settings["port"])]
        services.enter_context(service("server", server, environment))
        answers(f"http://127.0.0.1:{settings['port']}/api/health", settings["start_seconds"])
        run([prefect, "work-pool", "create", "burst", "--type", "process"], environment)
        run([BINARIES / "python", "deploy.py"], environment)
        worker = [prefect, "worker", "start", "--pool", "burst", "--limit", str(settings["parallel"])]
        services.enter_context(service("worker", worker, environment))
        wait_for(
            lambda: rows(KNOWN)[0] == settings["count"], settings["start_seconds"], "the flow runs to be scheduled"
        )
        time.sleep(1)
        yield lambda: [float(seconds) for seconds in rows(FINISHED)]


burst(prepare)
