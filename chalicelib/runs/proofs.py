"""Proofs that the process of a claim has ended (scheduler.md 7.3): what alone ends a lost run that had started.

Silence proves nothing. What proves: the longest life of a Lambda, or a fact that somebody who could see the process has
written to ``claims.process_ended_at``: the container service, a supervisor, or a later boot on the same machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from ..kernel.limits import LAMBDA_LIFE_MARGIN_SECONDS, LAMBDA_LIFE_SECONDS

ProofKind = Literal["lambda_bound", "reported"]


@dataclass(frozen=True, slots=True)
class Proof:
    """The process that held this claim is gone since ``ended_at`` at the latest."""

    claim_id: str
    run_id: str
    boot_id: str
    kind: ProofKind
    ended_at: datetime


def proved_ends(rows: Sequence[Mapping[str, Any]], now: datetime) -> list[Proof]:
    """Which of these live, accepted claims have an ended process, by the database clock ``now``.

    Each row has ``claim_id``, ``run_id``, ``boot_id``, ``worker_kind``, ``accepted_at`` and ``process_ended_at``; others
    are ignored. A claim that is missing from the answer is not known to live: nothing is known of it.
    """
    return [proof for row in rows if (proof := _proof(row, now)) is not None]


def lambda_bound(accepted_at: datetime) -> datetime:
    """After this moment no Lambda that accepted then can still run."""
    return accepted_at + timedelta(seconds=LAMBDA_LIFE_SECONDS + LAMBDA_LIFE_MARGIN_SECONDS)


def _proof(row: Mapping[str, Any], now: datetime) -> Proof | None:
    if row["process_ended_at"] is not None:
        return Proof(row["claim_id"], row["run_id"], row["boot_id"], "reported", row["process_ended_at"])
    if row["worker_kind"] == "lambda" and row["accepted_at"] is not None and now > lambda_bound(row["accepted_at"]):
        return Proof(row["claim_id"], row["run_id"], row["boot_id"], "lambda_bound", lambda_bound(row["accepted_at"]))
    return None
