"""Lease, epoch and take-over, in every order of steps and faults (scheduler.md 5.5; S5 to S7, S9)."""

from __future__ import annotations

import pytest

from tests.model.explorer import Explored, explore, stuck
from tests.model.leadership import Leadership, Rules, broken_rule, has_no_want, has_working_leader
from tests.model.leadership_state import State, canonical

STALE = "a commit under a replaced epoch"
REPEATED = "an acquisition did not raise the epoch"
LOST_WAKE_UP = "a wake-up was lost"
LEFT_BEHIND = "an invocation took its own lease for another's"

STEPS_OF_THE_PROTOCOL = {
    "minute tick", "due tick", "message arrives",
    "acquire", "find own acquire", "find lease held", "want, lease free", "want, then end", "want, then watch",
    "see lease free", "see holder alive", "see lease expired",
    "take over", "find own take-over", "find lease moved", "find lease freed",
    "bump", "find own bump", "record epoch", "find lease lost",
    "start pass", "renew", "find renewal refused", "begin", "check", "fenced", "commit", "complete pass",
    "release", "find wanted moved", "find lease released or lost", "release at time limit", "send message",
    "idle transaction ended",
}  # fmt: skip
FAULTS = {"crash", "pause", "resume", "failover", "failover that loses the last bump"}
CALLS = {
    "acquire", "take over", "want", "want, lease free", "want, then watch", "bump", "record epoch", "start pass",
    "renew", "commit", "release", "send message",
}  # fmt: skip


def checked(rules: Rules, *, database_fails_over: bool = True) -> Explored[State]:
    model = Leadership(rules, database_fails_over=database_fails_over)
    return explore(canonical(State()), model.steps_from, broken_rule)


def assert_safe_and_live(explored: Explored[State]) -> None:
    assert explored.violation is None, str(explored.violation)
    for goal in (has_working_leader, has_no_want):
        left = stuck(explored, goal)
        assert not left, f"{goal.__name__} cannot be reached any more after {explored.history(left[0])}"


def test_no_stale_commit_no_lost_wake_up_and_always_a_leader_again() -> None:
    explored = checked(Rules())
    print(f"{len(explored.origins)} states")
    assert_safe_and_live(explored)
    # The search says something only about what it met, so it has to meet everything.
    assert explored.actions == STEPS_OF_THE_PROTOCOL | FAULTS | {f"{call}, reply lost" for call in CALLS}
    assert len(explored.origins) > 100_000


@pytest.mark.parametrize(
    ("mutation", "rule"),
    [
        pytest.param(Rules(fence_is_read=False), STALE, id="commits without reading the epoch"),
        pytest.param(Rules(row_count_is_checked=False), STALE, id="the row count of FOR SHARE ignored"),
        pytest.param(Rules(advisory_lock=False, share_lock=False), STALE, id="the epoch read without a lock"),
        pytest.param(Rules(epoch_is_bumped=False), STALE, id="a take-over that keeps the epoch"),
        pytest.param(Rules(epoch_seen_counts=False), REPEATED, id="a failover without epoch_seen"),
        pytest.param(Rules(epoch_seen_needs_ownership=False), REPEATED, id="epoch_seen written by anyone"),
        pytest.param(Rules(own_success_is_looked_up=False), LEFT_BEHIND, id="a lost reply taken for a loss"),
        pytest.param(Rules(release_needs_wanted_unmoved=False), LOST_WAKE_UP, id="release whatever is wanted"),
        pytest.param(Rules(message_is_sent_after_release=False), LOST_WAKE_UP, id="message sent before the release"),
    ],
)
def test_a_protocol_without_this_part_breaks(mutation: Rules, rule: str) -> None:
    violation = checked(mutation).violation
    assert violation is not None
    assert violation.rule == rule


def test_without_take_over_a_crash_leaves_the_shard_without_a_leader() -> None:
    explored = checked(Rules(expired_lease_is_taken_over=False))
    assert explored.violation is None
    left = stuck(explored, has_working_leader)
    assert explored.history(left[0]) == ("minute tick", "acquire", "crash")


@pytest.mark.parametrize(
    "weaker",
    [
        pytest.param(Rules(expiry_is_observed=False), id="a lease taken over from a living holder"),
        pytest.param(Rules(advisory_lock=False), id="FOR SHARE alone"),
        pytest.param(Rules(share_lock=False), id="the advisory lock alone"),
    ],
)
def test_the_fence_alone_is_what_makes_it_safe(weaker: Rules) -> None:
    """The lease and its margin spare needless changes of leader, and two locks let a bump through sooner.

    No failovers here, only to be quick: with them the search is the one above once more for each.
    """
    assert_safe_and_live(checked(weaker, database_fails_over=False))
