"""Liveness: one DynamoDB item per boot of a worker, and the thread that moves its counter.

Invariants (scheduler.md 9): a lease decides who is alive, never what is safe; a failed beat never stops work, a
cancel signal or a revocation always does (S40); a refused condition is settled by a consistent read, so that our own
success after a lost reply is not taken for a loss (S9); no index and no TTL decides anything (S8).

Start reading at ``boots.py`` (the item, both sides of it), then ``beats.py`` (the thread).
"""

from .boots import lease_is_open, partition_of, revoke, signal_cancel

__all__ = ["lease_is_open", "partition_of", "revoke", "signal_cancel"]
