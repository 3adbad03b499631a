"""Altered products: each must be found by the checker that it names.

A mutation gives the simulated store other texts of named statements, or alters its schema. Nothing of the product's own
code is touched, and a rewrite that no longer finds what it removes fails loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources

from chalicelib.database import Query, load_queries
from chalicelib.kernel.limits import LEASE_MARGIN_SECONDS, LEASE_SECONDS
from tests.simulation.store import SimulationStore


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule removed: ``rewrites`` are other texts of named statements, ``schema`` is run on the store.

    ``lease_seconds`` is the lease of who schedules, ``boot_lease_seconds`` what boots say of theirs. ``blind`` are checkers
    that do not look, where another one would find the mutation first. What is ``interleaved`` needs two transactions at once and is looked
    for there. ``focus`` makes kinds of steps come more often than usual, so that a rare finding needs few seeds. ``updates`` are other conditions of updates in DynamoDB by those that the product gives (``None``: no condition).
    """

    name: str
    checker: str
    rewrites: Mapping[str, str] = field(default_factory=dict)
    schema: tuple[str, ...] = ()
    updates: Mapping[str, str | None] = field(default_factory=dict)
    lease_seconds: int = LEASE_SECONDS
    boot_lease_seconds: int = LEASE_SECONDS
    blind: frozenset[str] = frozenset()
    interleaved: bool = False
    focus: Mapping[str, int] = field(default_factory=dict)

    @property
    def alters_schema(self) -> bool:
        return bool(self.schema)

    def apply(self, store: SimulationStore) -> None:
        for statement in self.schema:
            store.alter(statement)


NO_MUTATION = Mutation("none", "")


def _query(name: str) -> Query:
    for package in ("runs", "schedules", "dispatch", "catalog", "leases", "scheduler", "alerts", "backfills"):
        for file in sorted(resources.files(f"chalicelib.{package}").iterdir(), key=lambda file: file.name):
            queries = load_queries(f"chalicelib.{package}", file.name) if file.name.endswith(".sql") else None
            if queries is not None and name in queries.names():
                return queries[name]
    raise KeyError(name)


def _without(name: str, part: str, instead: str = "") -> dict[str, str]:
    text = _query(name).text
    if part not in text:
        raise ValueError(f"{name} holds no {part!r}; the mutation must follow the statement")
    return {name: text.replace(part, instead)}


def _never(*names: str) -> dict[str, str]:
    """Statements that find nothing and change nothing."""
    return dict.fromkeys((_query(name).name for name in names), "SELECT 1 WHERE false")


_WRITE_CLAIM_KEY = "ALTER TABLE write_claims DROP CONSTRAINT write_claims_one_writer"
_UNSENT_LATER = "o.queued_at <= %(now)s::timestamptz - make_interval(secs => %(resend_seconds)s)"
_ON_CLAIM_CONFLICT = "ON CONFLICT ON CONSTRAINT write_claims_one_writer DO NOTHING"


def all_mutations() -> list[Mutation]:
    """Every mutation; built anew, since the statements of the product may have changed."""
    made: tuple[Callable[[], Mutation], ...] = (
        lambda: Mutation(
            "unique key of ticks dropped",
            "C2",
            schema=(
                "ALTER TABLE ticks DROP CONSTRAINT ticks_one_tick_per_occurrence",
                "ALTER TABLE ticks DROP CONSTRAINT ticks_pkey",
            ),
            focus={"leap_back": 15},
        ),
        lambda: Mutation(
            "ticks only for what was due within a minute",
            "C2",
            _without(
                "due_schedules",
                "s.next_at <= ",
                "s.next_at > %(pass_now)s::timestamptz - interval '1 minute' AND s.next_at <= ",
            ),
        ),
        lambda: Mutation("disabled schedules are ticked", "C2", _without("due_schedules", "AND s.enabled ")),
        lambda: Mutation(
            "a claimed run covers ticks",
            "C2",
            _without("covering_runs", "r.status = 'queued'", "r.status IN ('queued', 'claimed')"),
        ),
        lambda: Mutation(
            "one writer per relation is not enforced",
            "C3",
            {**_without("take_write_claims", _ON_CLAIM_CONFLICT), **_never("holders")},
            (_WRITE_CLAIM_KEY,),
        ),
        lambda: Mutation("a run keeps part of its relations", "C3", _never("holders", "drop_write_claims")),
        lambda: Mutation("the settle time is ignored", "C3", _never("settle_write_claims")),
        lambda: Mutation(
            "a claim may be accepted by a second worker",
            "C3",
            _without("accept_claim", " AND (boot_id IS NULL OR boot_id = %(boot_id)s)"),
        ),
        lambda: Mutation(
            "deadlines end running runs",
            "C3",
            {
                "overdue_claims": _query("overdue_claims")
                .text.replace("r.status = 'claimed'", "r.status IN ('claimed', 'running')")
                .replace("CASE WHEN", "CASE WHEN r.status = 'running' THEN c.accepted_at WHEN", 1)
            },
            focus={"stuck": 20},
        ),
        lambda: Mutation("pool use is not counted", "C4", _never("pool_use")),
        lambda: Mutation("slots are not given back", "C4", _never("free_slots")),
        lambda: Mutation(
            "active runs of the job are not counted",
            "C4",
            {**_never("active_of_jobs"), **_without("candidate_keys", "a.active + o.ahead <", "o.ahead <")},
        ),
        lambda: Mutation(
            "ended runs end again",
            "C5",
            {
                **_without("end_runs", " AND e.sources ? r.status"),
                **_without("unaccepted_claim", " AND c.ended_at IS NULL"),
            },
            focus={"cancel": 25, "outage": 4},
        ),
        lambda: Mutation(
            "an accepted cancel is forgotten",
            "C5",
            _without(
                "request_cancel", "cancel_requested_at = %(now)s", "cancel_requested_at = NULLIF(%(now)s, %(now)s)"
            ),
            focus={"cancel": 30},
        ),
        lambda: Mutation("blockers are not stored", "C6", _never("keep_blockers")),
        lambda: Mutation("a lost send is never repaired", "C6", _without("unsent", _UNSENT_LATER, "false")),
        lambda: Mutation("start deadlines do not pass", "C6", _never("overdue_claims")),
        lambda: Mutation("answers to reports are not stored", "C8", _never("store_report")),
        lambda: Mutation(
            "answers to a switch are not stored", "C8", _never("store_request"), focus={"switch": 40, "repeat": 40}
        ),
        lambda: Mutation("a cancel does not lock its run", "C5", _without("lock_run", " FOR UPDATE"), interleaved=True),
        lambda: Mutation(
            "the id of a cancel is not stored",
            "C8",
            _without("request_cancel", "cancel_id = %(cancel_id)s", "cancel_id = NULL"),
            focus={"cancel": 25, "repeat": 25},
        ),
    )
    return [make() for make in (*made, *_of_leadership(), *_of_losses(), *_of_the_rest())]


def _of_leadership() -> tuple[Callable[[], Mutation], ...]:
    """Lease, epoch, hint and look-ahead."""
    return (
        lambda: Mutation(
            "the fence is not checked",
            "C1",
            _without("check_epoch", " AND epoch = %(epoch)s AND owner_token = %(token)s"),
        ),
        lambda: Mutation(
            "the row count of the fence is ignored",
            "C1",
            {"check_epoch": "SELECT %(shard)s::integer AS shard, %(epoch)s::bigint AS epoch"},
        ),
        lambda: Mutation("an acquisition gets no new epoch", "C1", _without("bump_epoch", ") + 1 END", ") - 1 END")),
        lambda: Mutation(
            "the margin of the lease is ignored", "C1", lease_seconds=LEASE_SECONDS - LEASE_MARGIN_SECONDS
        ),
        lambda: Mutation(
            "the generation of the hint is ignored",
            "C11",
            updates={"#generation = :generation": None},
            focus={"hint_race": 20},
        ),
        lambda: Mutation(
            "a writer does not see that a hint was raised",
            "C11",
            _without("hint_sequences", "SELECT shard, hint_seq FROM", "SELECT shard, 0::bigint AS hint_seq FROM"),
            focus={"hint_race": 20},
        ),
        lambda: Mutation(
            "the sequence of the hint is not moved", "C11", _never("move_hint_sequence"), focus={"hint_race": 20}
        ),
        lambda: Mutation(
            "the next due time is not in the hint", "C11", _without("next_work", _NEXT_DUE, "(NULL::timestamptz)")
        ),
        lambda: Mutation(
            "a due second may get several messages",
            "C12",
            _without("look_ahead", "ON CONFLICT ON CONSTRAINT due_messages_one_per_second DO NOTHING"),
            ("ALTER TABLE due_messages DROP CONSTRAINT due_messages_one_per_second",),
        ),
    )


def _of_losses() -> tuple[Callable[[], Mutation], ...]:
    """Silence, marks, proofs, retries, resolutions."""
    return (
        lambda: Mutation("a boot is silent after a part of its lease", "C14", boot_lease_seconds=3, focus={"mute": 20}),
        lambda: Mutation(
            "a mark counts as a proof",
            "C14",
            {
                "marked_started": _without("marked_started", _PROVABLE)["marked_started"].replace(
                    "c.accepted_at, c.process_ended_at", _AS_IF_PROVED
                ),
                **_without("lock_runs_of_boots", "c.accepted_at, c.process_ended_at", _AS_IF_PROVED),
            },
            focus={"mute": 20},
        ),
        lambda: Mutation(
            "a beat does not clear a mark", "C15", _never("clear_lost", "clear_lost_of_claim"), focus={"mute": 25}
        ),
        lambda: Mutation("no boot is watched", "C11", _never("watches_boots"), focus={"mute": 20, "still": 4}),
        lambda: Mutation(
            "a run is retried twice",
            "C5",
            _without(
                "runs_with_policy", "JOIN snapshot_jobs sj", "CROSS JOIN generate_series(1, 2) JOIN snapshot_jobs sj"
            ),
            ("ALTER TABLE runs DROP CONSTRAINT runs_one_retry_per_run",),
        ),
        lambda: Mutation("what was cancelled is retried", "C5", schema=(_RETRY_CANCELLED, _ON_CANCELLED)),
        lambda: Mutation("no retry is queued", "C5", _never("runs_with_policy")),
        lambda: Mutation(
            "a resolution is not stored",
            "C8",
            _never("record_resolution"),
            focus={"resolve": 40, "repeat": 30, "die": 20},
        ),
    )


def _of_the_rest() -> tuple[Callable[[], Mutation], ...]:
    """Worker kinds, alerts, backfills, retention."""
    return (
        lambda: Mutation(
            "worker kinds have no pool",
            "C13",
            _without("keep_worker_pools", "SELECT p.pool, p.slot_limit FROM", "SELECT p.pool, 1000 FROM"),
            blind=frozenset({"C4", "C6"}),
            focus={"throttle": 10},
        ),
        lambda: Mutation("an alert stays open", "C15", _never("close_alerts", "close_ended")),
        lambda: Mutation(
            "a lasting condition is told anew",
            "C15",
            _without("open_alerts", _NOT_OPEN, "AND false"),
            ("DROP INDEX platform_alerts_one_open",),
            focus={"clock_step": 15},
        ),
        lambda: Mutation(
            "what began long ago is deleted",
            "C16",
            _without("lock_ended_runs", "AND r.finished_at < %(before)s::timestamptz", "AND r.finished_at IS NOT NULL"),
            focus={"days": 12},
        ),
        lambda: Mutation(
            "an unclaimed item stays", "C17", _never("drop_unclaimed"), blind=frozenset({"C5"}), focus={"backfill": 25}
        ),
        lambda: Mutation(
            "an item is begun again",
            "C17",
            {
                **_without("open_backfills", "i.backfill_id = b.backfill_id AND", "false AND"),
                **_without("move_backfills", "cursor = m.cursor", "cursor = NULL"),
            },
            ("ALTER TABLE backfill_items DROP CONSTRAINT backfill_items_one_run_per_item",),
            focus={"backfill": 25},
        ),
        lambda: Mutation(
            "runs of a backfill are not counted",
            "C17",
            {
                "open_backfills": _query("open_backfills")
                .text.replace("r.status IN ('queued', 'claimed', 'running')", "false")
                .replace("(sj.definition ->> 'concurrency')::integer - (", "100 - ("),
            },
            blind=frozenset({"C4", "C6"}),
            focus={"backfill": 25},
        ),
    )


_PROVABLE = " AND (c.process_ended_at IS NOT NULL OR c.worker_kind = 'lambda')"
_AS_IF_PROVED = "c.accepted_at, c.accepted_at AS process_ended_at"
_NOT_OPEN = "AND o.subject = f.subject AND o.closed_at IS NULL"
# Nothing in the product could do this by the loss of one condition; a trigger shows that it would be seen.
_RETRY_CANCELLED = """
CREATE FUNCTION retry_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO runs (run_id, location, target, job, shard, snapshot_id, inputs_json, origin, retry_of, retry_number, status, created_at)
    VALUES (NEW.run_id || '_again', NEW.location, NEW.target, NEW.job, NEW.shard, NEW.snapshot_id, NEW.inputs_json, 'retry',
            NEW.run_id, NEW.retry_number + 1, 'queued', NEW.finished_at);
    RETURN NULL;
END $$
"""
_ON_CANCELLED = """
CREATE TRIGGER retry_cancelled AFTER UPDATE ON runs FOR EACH ROW
WHEN (OLD.status <> 'cancelled' AND NEW.status = 'cancelled') EXECUTE FUNCTION retry_cancelled()
"""
_NEXT_DUE = (
    "(SELECT min(s.next_at) FROM trigger_state s WHERE s.shard = %(shard)s AND s.enabled AND s.next_at IS NOT NULL)"
)
