"""ECS says that a task has stopped: by an event, or when recovery asks (scheduler.md 7.3; F16)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from chalicelib.kernel.errors import Unavailable
from chalicelib.runs.model import AcceptRequest, StartRequest
from tests.doubles import HandClock, MemoryTasks
from tests.store.scheduler.conftest import SIX
from tests.store.world import BOOT, World, watch_the_door

TASK = "arn:aws:ecs:eu-central-1:123456789012:task/tidemill-prod/0123456789abcdef0123456789abcdef"
OTHER = TASK.replace("0123", "9999")
EVERY_PARTITION = list(range(16))


class Tasks(MemoryTasks):
    """Statuses of tasks; ``away`` makes it refuse."""

    away = False

    def last_statuses(self, task_arns: Sequence[str]) -> Mapping[str, str]:
        if self.away:
            raise Unavailable("ECS does not answer")
        return super().last_statuses(task_arns)


@pytest.fixture
def tasks() -> Tasks:
    return Tasks({TASK: "STOPPED"})


@pytest.fixture
def world(application_url: str, owner_url: str, tasks: Tasks) -> Iterator[World]:
    watch_the_door(owner_url)
    made = World(application_url, clock=HandClock(SIX), tasks=tasks)
    made.target(settle=900)
    made.publish({name: {"relations": [name]} for name in ("orders", "items", "lines")})
    made.open_boot()
    yield made
    made.close()


def accepted(world: World, job: str, task: str | None = TASK, boot_id: str = BOOT) -> str:
    run_id = world.request(job)
    world.run_pass()
    request = AcceptRequest(
        claim_id=world.claim_of(run_id), boot_id=boot_id, boot_partition=0, worker_kind="container", started_ref=task
    )
    world.runs.accept(run_id, request)
    return run_id


def started(world: World, job: str, task: str | None = TASK) -> str:
    run_id = accepted(world, job, task)
    world.runs.start(run_id, world.claim_of(run_id), StartRequest(boot_id=BOOT))
    return run_id


def marked(world: World, *runs: str) -> None:
    world.sql("UPDATE runs SET heartbeat_lost_at = %s WHERE run_id = ANY(%s)", world.clock.now(), list(runs))


def ended(world: World, run_id: str) -> tuple[str, str | None, bool]:
    run = world.runs.run(run_id)
    assert run.claim is not None
    return run.state, run.end_reason, run.claim.process_ended_at is not None


def test_the_event_settles_every_run_of_its_task_and_no_other(world: World) -> None:
    running, waiting, other = started(world, "orders"), accepted(world, "items"), started(world, "lines", OTHER)
    assert world.runs.tasks_stopped([TASK]) == sorted([running, waiting])
    assert ended(world, running) == ("failed", "lost", True)
    assert ended(world, waiting) == ("launch_failed", "lost_before_start", True)
    assert ended(world, other) == ("running", None, False)
    held = {
        row["relation"]: row["release_after"] for row in world.sql("SELECT relation, release_after FROM write_claims")
    }
    assert held.keys() == {"orders", "lines"}  # what started keeps its claim for the settle time
    assert held["lines"] is None
    assert world.sql("SELECT count(*) AS n FROM slots WHERE run_id = %s", running) == [{"n": 0}]


def test_an_event_that_comes_twice_late_or_for_nobody_changes_nothing(world: World) -> None:
    run_id = started(world, "orders")
    world.finish(run_id, world.claim_of(run_id))
    before = world.sql("SELECT * FROM runs")
    assert world.runs.tasks_stopped([TASK]) == []
    assert world.runs.tasks_stopped([TASK, OTHER]) == []
    assert world.runs.tasks_stopped([]) == []
    assert world.sql("SELECT * FROM runs") == before
    assert ended(world, run_id) == ("succeeded", None, False)


def test_a_cancelled_run_of_a_stopped_task_ends_cancelled(world: World) -> None:
    run_id = started(world, "orders")
    world.sql("UPDATE runs SET cancel_requested_at = %s, cancel_id = 'can_0000000000000001'", SIX)
    world.runs.tasks_stopped([TASK])
    assert world.state(run_id) == "cancelled"


def test_a_lost_event_is_made_up_for_by_asking_about_marked_runs_only(world: World, tasks: Tasks) -> None:
    lost, fresh = started(world, "orders"), started(world, "items", OTHER)
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == []
    assert tasks.asked == []
    marked(world, lost)
    assert world.runs.prove_stopped_tasks([3]) == []  # the boots of another shard
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == [lost]
    assert tasks.asked == [[TASK]]
    assert ended(world, lost) == ("failed", "lost", True)
    assert world.state(fresh) == "running"
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == []
    assert tasks.asked == [[TASK]]


@pytest.mark.parametrize("statuses", [{}, {TASK: "RUNNING"}, {TASK: "DEACTIVATING"}, {OTHER: "STOPPED"}])
def test_an_empty_an_old_and_an_unknowing_answer_prove_nothing(
    world: World, tasks: Tasks, statuses: dict[str, str]
) -> None:
    run_id = started(world, "orders")
    marked(world, run_id)
    tasks.statuses = statuses
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == []
    assert ended(world, run_id) == ("running", None, False)


def test_a_service_that_is_away_proves_nothing_and_is_asked_again(world: World, tasks: Tasks) -> None:
    run_id = started(world, "orders")
    marked(world, run_id)
    tasks.away = True
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == []
    tasks.away = False
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == [run_id]


def test_what_is_no_task_is_not_asked_about(world: World, tasks: Tasks) -> None:
    runs = [started(world, "orders", None), started(world, "items", "7f1c3b9e-0000-0000-0000-invocation00")]
    marked(world, *runs)
    assert world.runs.prove_stopped_tasks(EVERY_PARTITION) == []
    assert tasks.asked == []


def test_accepting_again_keeps_the_first_reference(world: World) -> None:
    run_id = accepted(world, "orders")
    request = AcceptRequest(
        claim_id=world.claim_of(run_id), boot_id=BOOT, boot_partition=0, worker_kind="container", started_ref=OTHER
    )
    world.runs.accept(run_id, request)
    assert world.sql("SELECT started_ref FROM claims") == [{"started_ref": TASK}]


def test_the_proof_wakes_whoever_waited(world: World) -> None:
    run_id = started(world, "orders")
    world.queues.sent.clear()
    world.runs.tasks_stopped([TASK])
    assert len(world.queues.sent["tick"]) == 1
    world.queues.sent.clear()
    world.runs.tasks_stopped([TASK])
    assert world.queues.sent == {}
    assert world.state(run_id) == "failed"
