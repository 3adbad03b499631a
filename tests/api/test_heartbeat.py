"""Beats over HTTP: the same item, moved by whoever has the boot's own secret (scheduler.md 9, 17)."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.leases.boots import WHOLE_BOOT, key_of, partition_of, revoke, signal_cancel
from tests.api.site import RUN, Answered, Caller, Site, acceptance

OWNER = "own_00000000000000000000000000000007"
FACTS = {
    "machine_id": "m" * 64, "kernel_boot_id": "k", "pid_namespace": "pid:[4026531836]", "pid": 7, "pid_started": 70,
    "lease_seconds": 30,
}  # fmt: skip


class Boot:
    """A boot of a worker outside the account; leases outlive a test, hence an id of its own."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.caller = site.holder("work")
        self.boot_id = site.services.ids.mint("boot")
        self.partition = partition_of(self.boot_id)
        self.nothing = {"boot_partition": self.partition, "cancels": {}, "revoked_claims": [], "lost": None}

    def beat(self, caller: Caller | None = None, **fields: Any) -> Answered:
        body = {"boot_id": self.boot_id, "owner_token": OWNER, **fields}
        return (caller or self.caller).post("/v1/worker/heartbeat", body)

    def item(self) -> dict[str, Any] | None:
        found = self.site.services.aws.leases.get(*key_of(self.boot_id, self.partition))
        return None if found is None else dict(found)


@pytest.fixture
def boot(site: Site) -> Boot:
    return Boot(site)


@pytest.fixture
def opened(boot: Boot) -> Boot:
    assert boot.beat(boot=FACTS).body == boot.nothing
    return boot


def test_the_first_beat_opens_the_lease_and_every_beat_moves_it(opened: Boot) -> None:
    first = opened.item() or {}
    assert FACTS.items() <= first.items()
    assert (first["counter"], first["locations"], first["kind"]) == (1, ["cafe"], "container")
    assert opened.beat().body == opened.nothing
    assert opened.item() == first | {"counter": 2, "tidy_at": (opened.item() or {})["tidy_at"]}
    assert opened.beat(boot=FACTS).body == opened.nothing  # a lost answer of the first beat, asked for again
    assert (opened.item() or {})["counter"] == 3


def test_a_boot_that_beats_over_http_may_accept(site: Site, opened: Boot) -> None:
    site.publish()
    body = acceptance(site.claimed(), opened.boot_id) | {"boot_partition": opened.partition}
    assert opened.caller.post(f"/v1/worker/runs/{RUN}/accept", body).status == 200


def test_the_answer_brings_cancels_and_revocations(site: Site, opened: Boot) -> None:
    leases, at = site.services.aws.leases, (opened.boot_id, opened.partition)
    signal_cancel(leases, *at, "run_1", "can_1")
    revoke(leases, *at, "clm_2")
    assert opened.beat().body == opened.nothing | {"cancels": {"run_1": "can_1"}, "revoked_claims": ["clm_2"]}
    revoke(leases, *at, WHOLE_BOOT)
    assert opened.beat().body["lost"] == "revoked"


def test_process_groups_travel_with_a_beat(opened: Boot) -> None:
    groups = {"run_00000000000000000000000000000001": {"pgid": 9, "started": 90}}
    for sent, kept in ((groups, groups), (None, groups), ({}, {})):
        assert opened.beat(process_groups=sent).status == 200
        assert (opened.item() or {})["process_groups"] == kept


def test_whoever_lacks_the_secret_of_the_boot_moves_nothing(opened: Boot) -> None:
    before = opened.item()
    stranger = OWNER.replace("7", "8")
    assert opened.beat(owner_token=stranger).body["lost"] == "taken"
    refused = opened.beat(owner_token=stranger, boot=FACTS)
    assert (refused.status, refused.body["code"]) == (409, "id_reused")
    assert opened.item() == before


def test_a_beat_does_not_bring_back_a_lease_that_is_gone(site: Site, opened: Boot) -> None:
    site.services.aws.leases.remove(*key_of(opened.boot_id, opened.partition))
    assert opened.beat().body["lost"] == "gone"
    assert opened.item() is None


def test_only_a_boot_credential_may_beat(site: Site, boot: Boot) -> None:
    assert boot.beat(site.holder("publish"), boot=FACTS).status == 403
    assert boot.beat(site.caller(), boot=FACTS).status == 401
    assert boot.item() is None


@pytest.mark.parametrize(
    "fields",
    [{"owner_token": "short"}, {"boot": {}}, {"boot": FACTS | {"lease_seconds": 0}}, {"process_groups": {"x": {}}}],
)
def test_a_beat_that_is_not_whole_is_refused(boot: Boot, fields: dict[str, Any]) -> None:
    assert boot.beat(**fields).status == 422
