"""The files in ``.chalice``: one policy per function and stage, and no right that the code does not use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.entrypoints.api.application import build_app
from chalicelib.settings import Settings

CHALICE = Path(__file__).parents[2] / ".chalice"
STAGES = ("dev", "prod")
FUNCTIONS = (
    "api_handler",
    "dead_letter_container",
    "dead_letter_lambda",
    "due_tick",
    "recovery",
    "task_events",
    "tick",
)


def config() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHALICE / "config.json").read_text(encoding="utf-8"))
    return found


def policy(stage: str, function: str) -> dict[str, Any]:
    path = CHALICE / "policies" / stage / f"{function}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_every_function_of_the_application_is_configured() -> None:
    app = build_app()
    declared = {"api_handler", *(function.name for function in app.event_sources)}
    assert declared == set(FUNCTIONS) == config()["lambda_functions"].keys()


@pytest.mark.parametrize("stage", STAGES)
def test_every_function_has_a_policy_of_its_own(stage: str) -> None:
    assert config()["autogen_policy"] is False
    functions = config()["stages"][stage]["lambda_functions"]
    assert functions == {name: {"iam_policy_file": f"policies/{stage}/{name}.json"} for name in FUNCTIONS}
    assert {path.stem for path in (CHALICE / "policies" / stage).iterdir()} == set(FUNCTIONS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_stages_have_the_same_rights_each_on_its_own_things(function: str) -> None:
    dev, prod = (json.dumps(policy(stage, function)) for stage in STAGES)
    assert "tidemill-prod" not in dev
    assert dev.replace("tidemill-dev", "tidemill-prod") == prod


@pytest.mark.parametrize("function", FUNCTIONS)
def test_only_the_network_s_actions_are_on_everything(function: str) -> None:
    for statement in policy("prod", function)["Statement"]:
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in statement["Action"])
        if statement["Sid"] != "Network":
            assert "*" not in statement["Resource"]


def actions(function: str, service: str) -> set[str]:
    statements = policy("prod", function)["Statement"]
    return {action for statement in statements for action in statement["Action"] if action.startswith(f"{service}:")}


def table_actions(function: str, table: str) -> set[str]:
    statements = policy("prod", function)["Statement"]
    return {
        action
        for statement in statements
        if f"arn:*:dynamodb:*:*:table/tidemill-prod-{table}" in statement["Resource"]
        for action in statement["Action"]
    }


def test_a_queue_reader_only_reads_its_queue_and_wakes_the_scheduler() -> None:
    for function in ("dead_letter_container", "dead_letter_lambda", "task_events"):
        wake = {"sqs:GetQueueUrl", "sqs:SendMessage"}
        assert actions(function, "sqs") == {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"} | wake
        assert actions(function, "dynamodb") == table_actions(function, "hints") == {"dynamodb:UpdateItem"}
        assert not actions(function, "s3")


def test_every_writer_may_lower_hints_and_only_the_minute_tick_reads_them_all() -> None:
    assert all("dynamodb:UpdateItem" in table_actions(function, "hints") for function in FUNCTIONS)
    assert {function for function in FUNCTIONS if "dynamodb:Query" in table_actions(function, "hints")} == {"tick"}


def test_whoever_leads_a_shard_may_move_its_lease() -> None:
    leaders = {f for f in FUNCTIONS if table_actions(f, "leases") >= {"dynamodb:GetItem", "dynamodb:UpdateItem"}}
    assert leaders == {"api_handler", "due_tick", "recovery", "tick"}  # the API signals cancels there


def test_whoever_leads_may_act_on_what_a_recovery_saw() -> None:
    """It looks at the boots again, and deletes the item of one that is gone."""
    acts = {"dynamodb:DeleteItem", "dynamodb:Query"}
    actors = {function for function in FUNCTIONS if table_actions(function, "leases") >= acts}
    assert actors == {"due_tick", "recovery", "tick"}


def test_only_the_minute_tick_starts_a_recovery() -> None:
    queue = "arn:*:sqs:*:*:tidemill-prod-recovery"
    senders = {
        function
        for function in FUNCTIONS
        for statement in policy("prod", function)["Statement"]
        if queue in statement["Resource"] and "sqs:SendMessage" in statement["Action"]
    }
    assert senders == {"tick"}


def test_only_the_api_reaches_objects() -> None:
    assert {function for function in FUNCTIONS if actions(function, "s3")} == {"api_handler"}


def test_every_variable_is_a_setting() -> None:
    names = {f"TIDEMILL_{field.upper()}" for field in Settings.model_fields}
    for stage in STAGES:
        variables = config()["stages"][stage]["environment_variables"]
        assert variables.keys() <= names
        assert variables["TIDEMILL_STAGE"] == stage


def test_the_api_ends_before_the_gateway_gives_up() -> None:
    gateway_seconds = 29
    assert config()["lambda_functions"]["api_handler"]["lambda_timeout"] < gateway_seconds
