"""20,000 queued runs of 200 jobs that write 50 relations, from queueing to release, beside two job queues on Postgres."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .document import Document, Figure, Figures, rounded, say
from .installation import installation
from .peers import Peer, PeerUnavailable, peers_of
from .run_life import Life, Load, claim_all, fill_jobs, queue_all
from .statements import SETTINGS, StatementCounter
from .store import Store, durable_server
from .stores_in_memory import DeliveringQueues

LOAD = Load(runs=20_000, jobs=200, relations=50)
APART = replace(LOAD, relations=LOAD.jobs)
WORKERS = 6
SLOTS = 1_000
QUEUED_TOGETHER = 1_000
_OURS = (
    "per run: row, events, place in its job, pool slot and write claim, claim and outbox row by statements for many; then "
    "accept (token), start and keyed terminal report, each a transaction that locks the run, and release"
)
# Tried: more tasks, deleting what is finished, and several processes are not faster.
_PROCRASTINATE: Mapping[str, Any] = {"concurrency": 10, "delete_jobs": "never", "fetchers": 4}
_PGQUEUER: Mapping[str, Any] = {"batch_size": 1_000}
_DO = {
    "procrastinate": "per job: fetch (one function call that marks it) and finish (another), each its own transaction",
    "pgqueuer": "per 1,000 jobs: one statement that marks them picked, one that moves them to the log",
}


def measure() -> Document:
    """Claims alone, whole lives, then the peers, each in a database of its own in one server."""
    with durable_server(SETTINGS) as make:
        claims = _claims(make("claims"), LOAD)
        apart = _claims(make("apart"), APART)
        store = make("lives")
        lives = _lives(store)
        figures = {**_described(store), **lives, **claims, **{f"apart_{name}": value for name, value in apart.items()}}
        peers: dict[str, Figure | Figures] = {}
        for peer in peers_of("claims"):
            say(f"{peer.name}")
            peers[peer.name] = _peer(peer, store)
        return Document("claims", figures, peers, _ratios(figures, peers))


def _described(store: Store) -> Figures:
    return {
        "runs": LOAD.runs,
        "jobs": LOAD.jobs,
        "relations": LOAD.relations,
        "workers": WORKERS,
        "per_run": _OURS,
        "postgres": store.described(),
    }


def _claims(store: Store, load: Load) -> Figures:
    """Queue, then claim all; ending the claimed runs between the passes takes no time that counts."""
    say(f"queueing and claiming {load.runs:,} runs that write {load.relations} relations")
    with installation(store, container_slots=SLOTS) as installed, store.direct() as connection:
        fill_jobs(connection, load)
        counter = StatementCounter(store.superuser_url)
        counter.begin()
        began = time.perf_counter()
        queue_all(installed, load)
        queued = time.perf_counter() - began
        connection.execute("ANALYZE")
        claiming = claim_all(installed, connection, load)
        seconds = queued + claiming.seconds
        return {
            "queue_seconds": rounded(queued),
            "claim_seconds": rounded(claiming.seconds),
            "queued_and_claimed_per_second": rounded(load.runs / seconds),
            "claim_passes": claiming.passes,
            "evaluations_per_run": rounded(claiming.evaluated / load.runs),
            "claim_statements_per_run": rounded(installed.statements / load.runs),
        }


def _lives(store: Store) -> Figures:
    """Queue, and let passes and workers go on together until the last run is released."""
    say(f"{LOAD.runs:,} whole lives with {WORKERS} workers")
    queues = DeliveringQueues()
    with (
        installation(store, container_slots=SLOTS, connections=WORKERS + 2, queues=queues) as installed,
        store.direct() as connection,
    ):
        fill_jobs(connection, LOAD)
        counter = StatementCounter(store.superuser_url)
        counter.begin()
        began, processor = time.perf_counter(), time.process_time()
        queue_all(installed, LOAD)
        life = Life(installed, queues, LOAD, WORKERS)
        life.run()
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        _check_released(connection.execute(_LEFT).fetchone())
        return {
            "runs_per_second": rounded(LOAD.runs / seconds),
            "whole_life_seconds": rounded(seconds),
            "passes": life.passes,
            **counter.read().per(LOAD.runs),
            "cpu_ms_per_run_without_postgres": rounded(processor * 1_000 / LOAD.runs),
            **{f"dynamodb_{kind}_per_run": rounded(calls / LOAD.runs) for kind, calls in installed.table_calls.items()},
            **{f"sqs_{kind}_calls_per_run": rounded(calls / LOAD.runs) for kind, calls in queues.calls.items()},
        }


def _check_released(left: Mapping[str, Any] | None) -> None:
    if left is None or any(left.values()):
        raise RuntimeError(f"runs were not carried to their end: {left}")


_LEFT = b"""
SELECT (SELECT count(*) FROM runs WHERE status <> 'succeeded') AS runs, (SELECT count(*) FROM write_claims) AS write_claims,
       (SELECT count(*) FROM slots) AS slots, (SELECT count(*) FROM claims WHERE ended_at IS NULL) AS claims
"""


def _peer(peer: Peer, store: Store) -> Figures:
    try:
        if peer.name == "procrastinate":
            return _procrastinate(peer, store)
        worked, asked = _work(peer, store, "finish", _PGQUEUER)
    except PeerUnavailable as reason:
        return {"unavailable": str(reason)}
    return _figures_of(peer, worked, asked, _PGQUEUER)


def _procrastinate(peer: Peer, store: Store) -> Figures:
    worked, asked = _work(peer, store, "finish", _PROCRASTINATE)
    fetched, _ = _work(peer, store, "fetch", _PROCRASTINATE)
    seconds = fetched["queue_seconds"] + fetched["work_seconds"]
    together = {"queued_and_fetched_per_second": rounded(LOAD.runs / seconds)}
    return {**_figures_of(peer, worked, asked, _PROCRASTINATE), **together}


def _work(peer: Peer, store: Store, do: str, own: Mapping[str, Any]) -> tuple[Mapping[str, Any], Figures]:
    """Its program's answer, and what it asked of its database."""
    url = store.empty_database(f"{peer.name}_{do}")
    settings = {"url": url, "jobs": LOAD.runs, "batch": QUEUED_TOGETHER, **own}
    peer.answer({**settings, "do": "install"})
    counter = StatementCounter(url)
    counter.begin()
    answer = peer.answer({**settings, "do": do})
    if answer["left"]:
        raise RuntimeError(f"{peer.name} left {answer['left']} jobs undone")
    return answer, counter.read().per(LOAD.runs)


def _figures_of(peer: Peer, worked: Mapping[str, Any], asked: Figures, own: Mapping[str, Any]) -> Figures:
    return {
        "version": peer.version,
        "settings": ", ".join(f"{name}={value}" for name, value in own.items()) + ", uvloop, one process",
        "per_run": _DO[peer.name],
        "runs_per_second": rounded(LOAD.runs / worked["work_seconds"]),
        "queue_seconds": rounded(worked["queue_seconds"]),
        "work_seconds": rounded(worked["work_seconds"]),
        **asked,
    }


def _ratios(figures: Figures, peers: Mapping[str, Figure | Figures]) -> Figures:
    """Our whole life against their fetch and finish, and queue and claim against their defer and fetch."""
    return {
        "procrastinate": _ratio(figures, peers, "procrastinate", "runs_per_second", "runs_per_second"),
        "procrastinate_claim": _ratio(
            figures, peers, "procrastinate", "queued_and_claimed_per_second", "queued_and_fetched_per_second"
        ),
        "procrastinate_claim_apart": _ratio(
            figures, peers, "procrastinate", "apart_queued_and_claimed_per_second", "queued_and_fetched_per_second"
        ),
        "pgqueuer": _ratio(figures, peers, "pgqueuer", "runs_per_second", "runs_per_second"),
    }


def _ratio(figures: Figures, peers: Mapping[str, Figure | Figures], peer: str, ours: str, theirs: str) -> Figure:
    of_peer = peers.get(peer)
    value, mine = of_peer.get(theirs) if isinstance(of_peer, Mapping) else None, figures[ours]
    if not isinstance(value, int | float) or not isinstance(mine, int | float):
        return None
    return rounded(mine / value)
