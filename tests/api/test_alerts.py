"""Reading alerts over the API: what is open, pages, and how far a token reaches."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from chalicelib.alerts import AlertFact, close_alerts, open_alerts
from tests.api.site import LOCATION, TARGET, Caller, Site

PLACE = {"location": LOCATION, "target": TARGET, "job": "orders"}
FACTS = [
    AlertFact("run_waiting", "run_1", PLACE, "run_1"),
    AlertFact("run_lost", "run_2", PLACE, "clm_2"),
    AlertFact("run_waiting", "run_3", PLACE | {"location": "bakery"}, "run_3"),
    AlertFact("clock_skew", "0", {"seconds": 9.0}),
]


@pytest.fixture
def told(site: Site) -> Site:
    """Four alerts, one of which is over."""
    site.services.database.write(lambda tx: open_alerts(tx, FACTS))
    site.services.database.write(lambda tx: close_alerts(tx, "run_lost", ["run_2"]))
    return site


def subjects(caller: Caller, query: str = "") -> list[str]:
    answer = caller.get(f"/v1/alerts{query}")
    assert answer.status == 200, answer.text
    return sorted(alert["subject"] for alert in answer.body["items"])


def test_an_alert_says_what_holds_about_what_since_when(told: Site) -> None:
    (alert,) = told.operator.get("/v1/alerts?condition=clock_skew").body["items"]
    assert alert.pop("first_seen_at").endswith("Z")
    assert alert == {
        "condition": "clock_skew", "subject": "0", "episode": "1", "detail": {"seconds": 9.0}, "closed_at": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["0", "run_1", "run_2", "run_3"]),
        ("?open=true", ["0", "run_1", "run_3"]),
        ("?open=false", ["run_2"]),
        ("?condition=run_waiting", ["run_1", "run_3"]),
        (f"?location={LOCATION}", ["run_1", "run_2"]),
        (f"?location={LOCATION}&target=other", []),
    ],
)
def test_a_filter_leaves_out_the_others(told: Site, query: str, shown: list[str]) -> None:
    assert subjects(told.operator, query) == shown


def test_a_token_of_a_location_sees_its_own_runs_and_nothing_of_the_installation(told: Site) -> None:
    told.publish()
    told.operator.json("PUT", f"/v1/admin/locations/{LOCATION}/targets/other", {})
    assert subjects(told.holder("publish")) == ["run_1", "run_2"]
    assert subjects(told.holder("publish", location="bakery")) == ["run_3"]
    assert subjects(told.holder("publish"), "?location=bakery") == []
    assert subjects(told.caller(told.location_token("publish", target="other"))) == []
    assert told.holder("work").get("/v1/alerts").status == 403


def test_pages_follow_each_other_newest_first_also_within_one_moment(told: Site) -> None:
    with psycopg.connect(told.services.settings.database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE platform_alerts SET first_seen_at = first_seen_at - %s WHERE subject = '0'", [timedelta(hours=1)]
        )
    seen: list[Any] = []
    cursor = ""
    while True:
        page = told.operator.get(f"/v1/alerts?limit=1{cursor}").body
        seen += [alert["subject"] for alert in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = f"&cursor={page['next_cursor']}"
    assert seen == ["run_2", "run_1", "run_3", "0"]  # by condition and subject where the moment is the same
    refused = told.operator.get(f"/v1/alerts?open=true{cursor}")
    assert (refused.status, refused.body["code"]) == (422, "invalid_request")


@pytest.mark.parametrize("query", ["?open=perhaps", "?condition=nonsense", "?limit=0"])
def test_a_filter_that_is_none_is_refused(told: Site, query: str) -> None:
    assert told.operator.get(f"/v1/alerts{query}").status == 422


def test_a_monitor_outside_learns_that_nobody_schedules(site: Site) -> None:
    """BR-082: the schedulers have stopped, so only the store can tell; the API itself is ready."""
    site.publish()
    site.services.scheduler.run_pass(0)
    with psycopg.connect(site.services.settings.database_url, autocommit=True) as connection:
        connection.execute("UPDATE trigger_state SET next_at = clock_timestamp() - interval '4 minutes'")
        connection.execute("UPDATE scheduler_shards SET passed_at = clock_timestamp() - interval '5 minutes'")
    answer = site.caller().get("/v1/ready")
    assert (answer.status, answer.body) == (200, {"status": "ready", "scheduler": "late", "late_shards": [0]})
    site.services.scheduler.run_pass(0)
    assert site.caller().get("/v1/ready").body["scheduler"] == "ok"
    (alert,) = site.operator.get("/v1/alerts?condition=scheduler_late").body["items"]
    assert alert["closed_at"] is not None
