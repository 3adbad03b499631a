"""What proves that a process has ended, and what does not (scheduler.md 7.3)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chalicelib.cloud.ports import NoTasks
from chalicelib.kernel.errors import Unavailable
from chalicelib.runs.proofs import Proof, lambda_bound, proved_ends
from chalicelib.runs.proving import is_task, stopped_among, stopped_task
from tests.doubles import MemoryTasks

EVENTS = Path(__file__).parents[3] / "events"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BOUND = timedelta(seconds=960)
TASK = "arn:aws:ecs:eu-central-1:123456789012:task/tidemill-prod/0123456789abcdef0123456789abcdef"
OTHER = TASK.replace("0123", "9999")


def claim(**changes: Any) -> dict[str, Any]:
    row = {"claim_id": "clm_1", "run_id": "run_1", "boot_id": "boot_1", "worker_kind": "container"}
    return {**row, "accepted_at": NOON, "process_ended_at": None, **changes}


def event(name: str) -> dict[str, Any]:
    read = json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))
    body: dict[str, Any] = json.loads(read["Records"][0]["body"])
    return body


def test_a_lambda_is_ended_past_its_longest_life_and_the_margin() -> None:
    row = claim(worker_kind="lambda")
    assert proved_ends([row], NOON + BOUND) == []
    assert proved_ends([row], NOON + BOUND + timedelta(microseconds=1)) == [
        Proof("clm_1", "run_1", "boot_1", "lambda_bound", NOON + BOUND)
    ]
    assert lambda_bound(NOON) == NOON + BOUND


def test_silence_of_a_container_proves_nothing_however_long() -> None:
    assert proved_ends([claim()], NOON + timedelta(days=400)) == []


def test_a_claim_that_nobody_accepted_has_no_process_to_prove() -> None:
    assert proved_ends([claim(worker_kind="lambda", accepted_at=None)], NOON + timedelta(days=1)) == []


def test_a_proof_that_came_another_way_is_taken_as_it_is() -> None:
    at = NOON + timedelta(seconds=3)
    assert proved_ends([claim(process_ended_at=at), claim(claim_id="clm_2")], NOON) == [
        Proof("clm_1", "run_1", "boot_1", "reported", at)
    ]


def test_only_the_task_s_own_last_status_is_proof() -> None:
    assert stopped_task(event("sqs_task_stopped")) == TASK
    # wanted stopped, its only container stopped, and still being taken down
    assert stopped_task(event("sqs_task_stopping")) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"detail-type": "ECS Container Instance State Change"},
        {"detail": None},
        {"detail": {"lastStatus": "STOPPED"}},
        {"detail": {"lastStatus": "STOPPED", "taskArn": 7}},
        {"detail": {"lastStatus": "STOPPED", "taskArn": "clm_1"}},
        {"detail": {"lastStatus": "RUNNING", "taskArn": TASK}},
        {"detail": {"lastStatus": "stopped", "taskArn": TASK}},
    ],
)
def test_other_events_prove_nothing(changes: dict[str, Any]) -> None:
    assert stopped_task(event("sqs_task_stopped") | changes) is None


def test_keys_that_are_not_known_yet_do_not_matter() -> None:
    read = event("sqs_task_stopped")
    assert stopped_task(read | {"new": 1, "detail": read["detail"] | {"newer": [2]}}) == TASK


@pytest.mark.parametrize(
    ("statuses", "proved"),
    [
        ({TASK: "STOPPED"}, [TASK]),
        ({TASK: "RUNNING"}, []),  # an old answer
        ({TASK: "DEPROVISIONING"}, []),
        ({}, []),  # it does not know the task any more, or the answer was empty
        ({OTHER: "STOPPED"}, []),
    ],
)
def test_what_a_description_proves(statuses: dict[str, str], proved: list[str]) -> None:
    assert stopped_among(MemoryTasks(statuses), [TASK]) == proved


def test_no_answer_proves_nothing() -> None:
    class Away:
        def last_statuses(self, task_arns: object) -> dict[str, str]:
            raise Unavailable("ECS does not answer")

    assert stopped_among(Away(), [TASK]) == []
    assert stopped_among(NoTasks(), [TASK]) == []


def test_only_tasks_are_asked_about() -> None:
    tasks = MemoryTasks({TASK: "STOPPED", "7f1c3b9e-invocation": "STOPPED"})
    assert stopped_among(tasks, ["7f1c3b9e-invocation", TASK]) == [TASK]
    assert stopped_among(tasks, ["7f1c3b9e-invocation"]) == []
    assert tasks.asked == [[TASK]]
    assert not is_task("arn:aws:ecs:eu-central-1:123456789012:cluster/tidemill-prod")
