"""Reruns: a finished run once more, by a person: as it was, what was left over of it, or by today's job (scheduler.md 10.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..catalog.plan import shard_of
from ..database import Transaction, load_queries
from ..kernel.errors import NotFound, NothingToRerun, NotTerminal
from ..kernel.ids import IdSource
from ..leases.lowering import all_shards
from ..projects.bundle import JobDefinition
from ..projects.inputs import resolve_inputs
from .model import RerunRequest
from .queueing import QUERIES as QUEUEING
from .queueing import NewRun, asked_before, queue_requested
from .selecting import graph_of, left_over, narrowed
from .states import TERMINAL

QUERIES = load_queries(__package__, "rerunning.sql")


@dataclass(frozen=True, slots=True)
class _Choice:
    """What the new run builds: ``selection`` (``None``: the whole job) and the nodes that it leaves as they are."""

    selection: Sequence[str] | None
    carried: Sequence[str] = ()


def rerun(tx: Transaction, ids: IdSource, original_id: str, request: RerunRequest, requested_by: str) -> bool:
    """Queue a rerun for a person; ``False`` when this very request did so before, whatever was published since (S47).

    Raises ``NotFound``, ``NotTerminal``, ``NothingToRerun``, ``IdReused`` or, with ``current``, ``InvalidInputs``.
    """
    asked = {"rerun_of": original_id, "current": request.current, "from_failed": request.from_failed}
    if asked_before(tx, request.run_id, requested_by, asked):
        return False
    original = _original(tx, original_id)
    wanted = {"run_id": request.run_id, "requested_by": requested_by, "request": asked}
    if request.current:
        return queue_requested(tx, ids, _by_current_job(tx, original, wanted))
    choice = _choice(tx, original, from_failed=request.from_failed)
    run = _again(original, shard_of_rerun(tx, original), wanted, choice.selection)
    fresh = queue_requested(tx, ids, run)
    if fresh and choice.carried:
        tx.execute(QUERIES["carry_nodes"], run_id=run.run_id, nodes=list(choice.carried))
    return fresh


def shards_of_rerun(tx: Transaction, original_id: str) -> list[int]:
    """The shard that the rerun of a run belongs to; none for a run that does not exist."""
    original = tx.row(QUERIES["rerunnable_run"], run_id=original_id)
    return [shard_of_rerun(tx, original)] if original is not None else []


def shard_of_rerun(tx: Transaction, original: Mapping[str, Any]) -> int:
    """Computed, not copied: a finished run keeps its shard when their number changes, and its job may be gone."""
    return shard_of(original["location"], original["target"], original["job"], len(all_shards(tx)))


def _original(tx: Transaction, run_id: str) -> dict[str, Any]:
    original = tx.row(QUERIES["rerunnable_run"], run_id=run_id)
    if original is None:
        raise NotFound(f"no run {run_id}; `tidemill runs list` shows the newest")
    if original["status"] not in TERMINAL:
        raise NotTerminal(
            f"run {run_id} is {original['status']}; wait for its end with `tidemill runs wait`, or cancel it",
            facts={"state": original["status"]},
        )
    return original


def _by_current_job(tx: Transaction, original: Mapping[str, Any], wanted: Mapping[str, Any]) -> NewRun:
    where = {name: original[name] for name in ("location", "target", "job")}
    found = tx.row(QUEUEING["current_job"], **where)
    if found is None:
        raise NotFound(
            f"the job {where['job']!r} is no longer published for {where['location']}/{where['target']}; "
            "leave --current out to run it as it was"
        )
    definition = JobDefinition.model_validate(found["definition"])
    inputs = resolve_inputs(definition, original["inputs_json"])
    return NewRun(
        **where, shard=found["shard"], snapshot_id=found["snapshot_id"], inputs=inputs, origin="rerun",
        scheduled_for=original["scheduled_for"], rerun_of=original["run_id"],
        selection=narrowed(tx, found["snapshot_id"], definition, inputs), **wanted,
    )  # fmt: skip


def _again(
    original: Mapping[str, Any], shard: int, wanted: Mapping[str, Any], selection: Sequence[str] | None
) -> NewRun:
    """Snapshot, inputs and occurrence of the original."""
    where = {name: original[name] for name in ("location", "target", "job", "snapshot_id", "scheduled_for")}
    return NewRun(
        **where, shard=shard, inputs=original["inputs_json"], origin="rerun", rerun_of=original["run_id"],
        selection=selection, **wanted,
    )  # fmt: skip


def _choice(tx: Transaction, original: Mapping[str, Any], *, from_failed: bool) -> _Choice:
    statuses = {row["node"]: row["status"] for row in tx.rows(QUERIES["statuses_of_run"], run_id=original["run_id"])}
    carried = [node for node, status in statuses.items() if status == "carried"]
    if not from_failed or not statuses:  # a run that told nothing about its nodes is repeated as a whole
        return _Choice(original["selection"], carried)
    own = original["definition"]["nodes"] if original["selection"] is None else original["selection"]
    selected = frozenset(own) | frozenset(carried)
    rest = left_over(selected, statuses, graph_of(tx, original["snapshot_id"]))
    if not rest:
        raise NothingToRerun(
            f"every node of run {original['run_id']} was built; leave --from-failed out to run all of it again"
        )
    return _Choice(rest, sorted(selected - frozenset(rest)))
