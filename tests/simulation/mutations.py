"""Altered products: each must be found by the checker that it names.

A mutation gives the simulated store other texts of named statements, or alters its schema. Nothing of the product's own
code is touched, and a rewrite that no longer finds what it removes fails loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from chalicelib.database import Query, load_queries
from chalicelib.kernel.limits import LEASE_MARGIN_SECONDS, LEASE_SECONDS
from tests.simulation.store import SimulationStore


@dataclass(frozen=True, slots=True)
class Mutation:
    """A rule removed: ``rewrites`` are other texts of named statements, ``schema`` is run on the store.

    ``updates`` are other conditions of updates in DynamoDB by those that the product gives (``None``: no condition).
    """

    name: str
    checker: str
    rewrites: Mapping[str, str] = field(default_factory=dict)
    schema: tuple[str, ...] = ()
    updates: Mapping[str, str | None] = field(default_factory=dict)
    lease_seconds: int = LEASE_SECONDS

    @property
    def alters_schema(self) -> bool:
        return bool(self.schema)

    def apply(self, store: SimulationStore) -> None:
        for statement in self.schema:
            store.alter(statement)


NO_MUTATION = Mutation("none", "")


def _query(name: str) -> Query:
    for package in ("runs", "schedules", "dispatch", "catalog", "leases", "scheduler"):
        queries = load_queries(f"chalicelib.{package}")
        if name in queries.names():
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
        ),
        lambda: Mutation("pool use is not counted", "C4", _never("pool_use")),
        lambda: Mutation("slots are not given back", "C4", _never("free_slots")),
        lambda: Mutation(
            "active runs of the job are not counted",
            "C4",
            {**_never("active_of_jobs"), **_without("candidates", " - a.active")},
        ),
        lambda: Mutation(
            "ended runs end again",
            "C5",
            {
                **_without("end_runs", " AND e.sources ? r.status"),
                **_without("unaccepted_claim", " AND c.ended_at IS NULL"),
            },
        ),
        lambda: Mutation(
            "an accepted cancel is forgotten",
            "C5",
            _without(
                "request_cancel", "cancel_requested_at = %(now)s", "cancel_requested_at = NULLIF(%(now)s, %(now)s)"
            ),
        ),
        lambda: Mutation("blockers are not stored", "C6", _never("keep_blockers")),
        lambda: Mutation("a lost send is never repaired", "C6", _without("unsent", _UNSENT_LATER, "false")),
        lambda: Mutation("start deadlines do not pass", "C6", _never("overdue_claims")),
        lambda: Mutation("answers to reports are not stored", "C8", _never("store_report")),
        lambda: Mutation("answers to a switch are not stored", "C8", _never("store_request")),
        lambda: Mutation(
            "the id of a cancel is not stored",
            "C8",
            _without("request_cancel", "cancel_id = %(cancel_id)s", "cancel_id = NULL"),
        ),
    )
    return [make() for make in (*made, *_of_leadership())]


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
        lambda: Mutation("the generation of the hint is ignored", "C11", updates={"#generation = :generation": None}),
        lambda: Mutation("the sequence of the hint is not moved", "C11", _never("move_hint_sequence")),
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


_NEXT_DUE = (
    "(SELECT min(s.next_at) FROM trigger_state s WHERE s.shard = %(shard)s AND s.enabled AND s.next_at IS NOT NULL)"
)
