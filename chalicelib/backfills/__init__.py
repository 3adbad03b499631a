"""Backfills: making up for a stretch of time, item by item (scheduler.md 10.5, ADR 0014).

Invariants: an item becomes a run only in the transaction that also claims it, so that a backfill leaves no unclaimed
waiting run, covers no tick and moves no schedule's cursor (S21); an item has at most one run, held by
``backfill_items_one_run_per_item``; what a backfill makes is pinned to the snapshot that was current when it was asked
for; after any crash it goes on behind its cursor. Start reading at ``plan.py``; ``advancing.py`` is the step of the pass.
"""
