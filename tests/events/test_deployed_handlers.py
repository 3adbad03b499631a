"""Each handler by its deployed path in a fresh interpreter: it wires itself, and imports no more than it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chalicelib.cloud.aws import Aws
from chalicelib.cloud.provision import provision
from chalicelib.local.moto_server import MotoServer
from chalicelib.settings import read_settings

ROOT = Path(__file__).parents[2]
HANDLERS = {
    "chalicelib.entrypoints.events.tick.handler": "minute_rule",
    "chalicelib.entrypoints.events.due_tick.handler": "sqs_tick",
    "chalicelib.entrypoints.events.recovery.handler": "sqs_recovery",
    "chalicelib.entrypoints.events.dead_letter.lambda_handler": "sqs_dead_letter",
    "chalicelib.entrypoints.events.dead_letter.container_handler": "sqs_dead_letter",
    "chalicelib.entrypoints.events.task_events.handler": "sqs_task_stopped",
}
CALL = """
import importlib, json, sys
module, _, name = sys.argv[1].rpartition(".")
answer = getattr(importlib.import_module(module), name)(json.load(sys.stdin), None)
json.dump(answer, sys.stdout)
"""
IMPORTED = "import importlib, sys; importlib.import_module(sys.argv[1]); print('\\n'.join(sys.modules))"
# What the cold start of a handler must not pay for before it has work.
DEAR = {"aws_lambda_powertools", "boto3", "botocore", "httpx", "jose", "moto", "psycopg", "psycopg_pool", "typer"}


def run(code: str, argument: str, stdin: str = "", **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, argument],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def environment(application_url: str) -> Iterator[dict[str, str]]:
    """The settings of an installation on a moto server."""
    server = MotoServer()
    made = {
        "TIDEMILL_STAGE": "test",
        "TIDEMILL_DATABASE_URL": application_url,
        "TIDEMILL_AWS_ENDPOINT": server.start(),
    }
    provision(Aws(read_settings(made)))
    yield made
    server.stop()


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_works_by_itself(handler: str, environment: dict[str, str]) -> None:
    event = (ROOT / "events" / f"{HANDLERS[handler]}.json").read_text(encoding="utf-8")
    assert json.loads(run(CALL, handler, event, **environment)) is None


def test_an_idle_tick_reads_the_hints_once_and_loads_no_driver(environment: dict[str, str]) -> None:
    """The first tick finds no hint, looks, and lets the shard sleep; the second one goes no further than that."""
    event = (ROOT / "events" / "minute_rule.json").read_text(encoding="utf-8")
    handler = "chalicelib.entrypoints.events.tick.handler"
    run(CALL, handler, event, **environment)
    loaded = CALL + "print(*sorted(sys.modules), sep='\\n', file=sys.stdout)"
    idle = set(
        run(
            loaded, handler, event, **{**environment, "TIDEMILL_DATABASE_URL": "postgresql://nowhere.invalid/x"}
        ).split()
    )
    assert "boto3" in idle
    assert not idle & {"psycopg", "psycopg_pool", "chalicelib.runs.service", "chalicelib.scheduler.service"}


def test_the_api_answers_an_event_of_api_gateway() -> None:
    event = (ROOT / "events" / "api_request.json").read_text(encoding="utf-8")
    answer = json.loads(run(CALL, "app.app", event, TIDEMILL_STAGE="test"))
    assert answer["statusCode"] == 200
    assert answer["headers"]["X-Request-Id"] == json.loads(event)["requestContext"]["requestId"]
    assert json.loads(answer["body"])["status"] == "ok"


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_imports_nothing_dear(handler: str) -> None:
    imported = set(run(IMPORTED, handler.rpartition(".")[0]).split())
    assert not imported & DEAR
    assert not {name for name in imported if name.startswith("chalicelib.entrypoints.api")}


def test_the_handler_of_the_worker_image_needs_neither_chalice_nor_a_setting_to_be_imported() -> None:
    imported = set(run(IMPORTED, "chalicelib.entrypoints.events.run_lambda").split())
    assert not imported & {*DEAR, "chalice"}


def test_the_application_is_imported_without_settings_or_services() -> None:
    imported = set(run(IMPORTED, "app").split())
    assert "jose" not in imported
    assert "chalicelib.bootstrap" not in imported


def test_a_setting_that_is_wrong_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import app"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "TIDEMILL_STAGE": "No Stage"},
    )
    assert done.returncode == 1
    assert "TIDEMILL_STAGE" in done.stderr
