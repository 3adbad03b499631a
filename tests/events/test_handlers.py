"""What each event does, by the function that the local event pump calls too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from chalicelib.entrypoints.events.dead_letter import handle_dead_letter
from chalicelib.entrypoints.events.due_tick import handle_due_tick
from chalicelib.entrypoints.events.recovery import handle_recovery
from chalicelib.entrypoints.events.task_events import handle_task_events
from chalicelib.entrypoints.events.tick import handle_tick
from chalicelib.kernel.clock import SystemClock
from chalicelib.kernel.errors import Malformed
from tests.api.site import BOOT, RUN, Site, acceptance

EVENTS = Path(__file__).parents[2] / "events"


def event(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text(encoding="utf-8"))


def records(*bodies: str) -> dict[str, Any]:
    (record,) = event("sqs_tick")["Records"]
    return {"Records": [record | {"body": body} for body in bodies]}


@pytest.fixture
def queued(site: Site) -> Site:
    site.publish()
    site.queued()
    return site


def tick(site: Site) -> None:
    handle_tick(site.services.hints, lambda: site.services, SystemClock())


def state(site: Site) -> str:
    return site.services.runs.run(RUN).state


def test_the_minute_rule_claims_what_is_queued(queued: Site) -> None:
    tick(queued)
    assert state(queued) == "claimed"


def test_the_minute_rule_hands_the_other_shards_to_the_queue(queued: Site) -> None:
    queued.services.scheduler.reshard(3)
    queued.woken()
    tick(queued)
    assert queued.woken() == [{"v": 1, "shard": shard, "kind": "minute"} for shard in (1, 2)]


def test_the_minute_rule_starts_recovery_where_a_boot_may_have_to_be_watched(site: Site) -> None:
    """A hint may say so without a boot, as one that is not there does; the pass that comes sees that there is none."""
    site.received("recovery")
    for shard in site.services.hints.read_all():  # of an earlier store, which may have had more
        site.services.hints.forget(shard)
    site.services.hints.announce(1)
    tick(site)
    assert site.received("recovery") == [{"v": 1, "shard": 0, "kind": "recovery"}]
    tick(site)
    assert site.received("recovery") == []
    site.publish()
    site.accepted()
    tick(site)
    assert site.received("recovery") == [{"v": 1, "shard": 0, "kind": "recovery"}]


def test_a_recovery_with_nobody_to_watch_ends_at_once_and_has_the_hint_say_so(site: Site) -> None:
    site.services.scheduler.reshard(1)
    site.woken()
    handle_recovery(site.services, event("sqs_recovery"))
    assert site.woken() == [{"v": 1, "shard": 0, "kind": "wake"}]


@pytest.mark.parametrize("body", ["no json", "{}", '{"shard": -1}'])
def test_a_recovery_that_names_no_shard_is_left_for_the_dead_letter_queue(site: Site, body: str) -> None:
    with pytest.raises(Malformed):
        handle_recovery(site.services, records(body))


def test_a_wake_up_claims_what_is_queued(queued: Site) -> None:
    handle_due_tick(queued.services, event("sqs_tick"))
    assert state(queued) == "claimed"


def test_a_wake_up_of_another_shard_leaves_it_alone(queued: Site) -> None:
    handle_due_tick(queued.services, records('{"v": 1, "shard": 1, "kind": "wake"}'))
    assert state(queued) == "queued"


def test_an_event_that_arrives_twice_changes_nothing_more(queued: Site) -> None:
    handle_due_tick(queued.services, event("sqs_tick"))
    claim = queued.services.runs.run(RUN).claim
    handle_due_tick(queued.services, event("sqs_tick"))
    tick(queued)
    again = queued.services.runs.run(RUN).claim
    assert claim is not None
    assert again is not None
    assert again.claim_id == claim.claim_id


@pytest.mark.parametrize("body", ["", "no json", "[]", "{}", '{"shard": "0"}', '{"shard": true}', '{"shard": -1}'])
def test_a_wake_up_that_names_no_shard_is_left_for_the_dead_letter_queue(site: Site, body: str) -> None:
    with pytest.raises(Malformed):
        handle_due_tick(site.services, records(body))


def test_a_dead_letter_ends_a_run_that_nobody_accepted(site: Site) -> None:
    site.publish()
    claim_id = site.claimed()
    dead = event("sqs_dead_letter")
    dead["Records"][0]["body"] = json.dumps({"v": 1, "run_id": RUN, "claim_id": claim_id, "shard": 0})
    handle_dead_letter(site.services, dead)
    run = site.services.runs.run(RUN)
    assert (run.state, run.end_reason) == ("launch_failed", "queue_dead")
    handle_dead_letter(site.services, dead)
    assert site.services.runs.run(RUN) == run


def test_a_dead_letter_of_an_accepted_run_is_late(site: Site) -> None:
    site.publish()
    site.accepted()
    claim = site.services.runs.run(RUN).claim
    assert claim is not None
    dead = records(json.dumps({"v": 1, "run_id": RUN, "claim_id": claim.claim_id, "shard": 0}))
    handle_dead_letter(site.services, dead)
    assert state(site) == "claimed"


@pytest.mark.parametrize("body", ["", "no json", "[]", "{}"])
def test_a_dead_letter_that_is_not_ours_is_dropped(site: Site, body: str) -> None:
    handle_dead_letter(site.services, records(body))
    assert site.operator.get("/v1/runs").body["items"] == []


TASK = "arn:aws:ecs:eu-central-1:123456789012:task/tidemill-prod/0123456789abcdef0123456789abcdef"


@pytest.fixture
def at_work(queued: Site) -> Site:
    """A run that a worker in that task carries."""
    tick(queued)
    claim = queued.services.runs.run(RUN).claim
    assert claim is not None
    queued.open_boot()
    accept = acceptance(claim.claim_id) | {"started_ref": TASK}
    answer = queued.holder("work").post(f"/v1/worker/runs/{RUN}/accept", accept)
    queued.caller(answer.body["worker_token"]).post(f"/v1/worker/runs/{RUN}/start", {"boot_id": BOOT})
    assert state(queued) == "running"
    return queued


def test_a_task_that_stopped_ends_its_runs_once(at_work: Site) -> None:
    for _ in range(2):
        handle_task_events(at_work.services, event("sqs_task_stopped"))
    run = at_work.services.runs.run(RUN)
    assert (run.state, run.end_reason) == ("failed", "lost")
    assert run.claim is not None
    assert run.claim.process_ended_at is not None


def test_a_task_that_is_being_stopped_ends_nothing(at_work: Site) -> None:
    handle_task_events(at_work.services, event("sqs_task_stopping"))
    assert state(at_work) == "running"


@pytest.mark.parametrize("body", ['{"detail-type": "other"}', '{"detail-type": "ECS Task State Change", "detail": {}}'])
def test_an_event_of_something_else_is_dropped(at_work: Site, body: str) -> None:
    handle_task_events(at_work.services, records(body))
    assert state(at_work) == "running"


def test_an_event_that_cannot_be_read_is_left_for_the_dead_letter_queue(site: Site) -> None:
    with pytest.raises(Malformed):
        handle_task_events(site.services, records("no json"))
