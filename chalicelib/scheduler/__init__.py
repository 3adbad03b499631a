"""The pass: what a tick does when it finds something to do (scheduler.md 5.6).

Invariants: work per transaction is bounded and a full batch is followed at once by the next (S11); any number of
overlapping passes gives what one gives (S10); every due decision uses the database clock (S12). Start at ``service.py``.
"""
