"""Dispatch: claims become queue messages that hold ids only, and undeliverable messages become verdicts.

Invariants: a committed claim is sent at least once (S34); a message may arrive twice, late or never, and that has no
effect on a run (S33). Start reading at ``service.py``.
"""
