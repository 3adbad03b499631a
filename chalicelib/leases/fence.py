"""The fence: what makes a stale scheduler harmless, checked inside its own transaction (scheduler.md 5.5, S5, S6).

The ``FOR SHARE`` with its checked row count makes the check hold until the commit; the shared advisory lock before it
queues fairly against the bump, so that a taker is not starved by many writers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..database import Transaction, load_queries

QUERIES = load_queries(__package__)
# The first keys of our advisory locks; the second key is the shard.
FENCE_CLASS = 7422
HINT_CLASS = 7423


class Fenced(RuntimeError):  # noqa: N818 - a state, not an error
    """Another scheduler has taken the shard: this invocation ends, and no user sees it."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The epoch under which a scheduler may write a shard, and the token of the acquisition that made it."""

    shard: int
    epoch: int
    token: str

    def check(self, tx: Transaction) -> None:
        """First in every scheduler transaction. Raises ``Fenced`` when the epoch was replaced."""
        tx.row(QUERIES["lock_shard_shared"], lock_class=FENCE_CLASS, shard=self.shard)
        if len(tx.rows(QUERIES["check_epoch"], shard=self.shard, epoch=self.epoch, token=self.token)) != 1:
            raise Fenced(f"shard {self.shard} has another epoch than {self.epoch}")


def bump(tx: Transaction, shard: int, token: str, epoch_seen: int) -> Fence:
    """A new epoch for a new acquisition, above every earlier one also after a failover that lost some (S6)."""
    tx.row(QUERIES["lock_shard_exclusively"], lock_class=FENCE_CLASS, shard=shard)
    row = tx.row(QUERIES["bump_epoch"], shard=shard, token=token, epoch_seen=epoch_seen)
    if row is None:
        raise Fenced(f"there is no shard {shard}")
    return Fence(shard, row["epoch"], token)
