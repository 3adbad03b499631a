"""Airflow with LocalExecutor on Postgres: scheduler, DAG processor and API server, a BashOperator in each DAG."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import psycopg2
from services import BINARIES, answers, burst, run, service, wait_for

DAGS = """
from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

for place in range({count}):
    with DAG(
        f"job{{place:03}}",
        schedule="{minute} {hour} * * *",
        start_date=datetime({start}, tzinfo=timezone.utc),
        catchup=False,
        is_paused_upon_creation=False,
    ) as dag:
        BashOperator(task_id="no_op", bash_command="/bin/true")
    globals()[dag.dag_id] = dag
"""
FINISHED = """
SELECT extract(epoch FROM end_date - run_after) FROM dag_run WHERE run_after = %s AND state IN ('success', 'failed')
"""


def prepare(settings):
    environment = {
        "AIRFLOW_HOME": settings["folder"],
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__DAGS_FOLDER": f"{settings['folder']}/dags",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{settings['port']}/execution/",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": settings["url"].replace("postgresql:", "postgresql+psycopg2:", 1),
        "AIRFLOW__API_AUTH__JWT_SECRET": "a secret of this benchmark, long enough for its algorithm: 0123456789abcdef",
    }
    Path("dags").mkdir()
    run([BINARIES / "airflow", "db", "migrate"], environment)
    return partial(start, settings, environment)


def start(settings, environment, due):
    text = DAGS.format(
        count=settings["count"], minute=due.minute, hour=due.hour, start=f"{due.year}, {due.month}, {due.day}"
    )
    Path("dags/jobs.py").write_text(text)
    database = psycopg2.connect(settings["url"])
    database.autocommit = True

    def rows(statement, *values):
        with database.cursor() as cursor:
            cursor.execute(statement, values)
            return [row[0] for row in cursor.fetchall()]

    def known():
        return rows("SELECT count(*) FROM dag WHERE NOT is_paused AND next_dagrun_create_after = %s", due)[0]

    with ExitStack() as services:
        airflow = BINARIES / "airflow"
        api = [airflow, "api-server", "--host", "127.0.0.1", "--port", str(settings["port"])]
        services.enter_context(service("api-server", api, environment))
        services.enter_context(service("dag-processor", [airflow, "dag-processor"], environment))
        services.enter_context(service("scheduler", [airflow, "scheduler"], environment))
        answers(f"http://127.0.0.1:{settings['port']}/api/v2/version", settings["start_seconds"])
        wait_for(lambda: known() == settings["count"], settings["start_seconds"], "the DAGs to be known")
        yield lambda: [float(seconds) for seconds in rows(FINISHED, due)]
    database.close()


burst(prepare)
