from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chalicelib.catalog import CatalogService
from chalicelib.kernel.errors import InvalidRequest, NotFound
from chalicelib.locations import LocationService, TargetSettings
from tests.snapshots import index_of, job, publish_request, schedule


def all_pages(read: Callable[[str | None], Any]) -> list[Any]:
    items, cursor = [], None
    while True:
        page = read(cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items


def test_snapshots_page_newest_first_and_mark_the_current_one(catalog: CatalogService) -> None:
    published = []
    for number in range(5):
        index = index_of([job(f"job_{number}")])
        catalog.publish("cafe", "prod", publish_request(index, number), "tester")
        published.append(index.snapshot_id())
    seen = all_pages(lambda cursor: catalog.snapshots("cafe", "prod", 2, cursor))
    assert [item.snapshot_id for item in seen] == published[::-1]
    assert [item.current for item in seen] == [True, False, False, False, False]


def test_snapshots_of_a_target_include_what_was_first_published_elsewhere(
    catalog: CatalogService, locations: LocationService
) -> None:
    locations.set_target("cafe", "dev", TargetSettings())
    index = index_of([job("orders")])
    catalog.publish("cafe", "prod", publish_request(index, 1), "tester")
    catalog.publish("cafe", "dev", publish_request(index, 2), "tester")
    (shown,) = catalog.snapshots("cafe", "dev").items
    assert (shown.snapshot_id, shown.location, shown.target, shown.current) == (
        index.snapshot_id(), "cafe", "dev", True,
    )  # fmt: skip
    assert catalog.current("cafe", "dev").target == "dev"
    assert catalog.snapshot(index.snapshot_id()).target == "prod"


def test_nodes_page_by_name(catalog: CatalogService) -> None:
    nodes = {
        f"model.n{number}": {
            "kind": "model",
            "relation": f"main.n{number}" if number else None,
            "drift_key": f"k{number}",
            "depends_on": ["model.n0"] if number else [],
        }
        for number in range(5)
    }
    index = index_of([job("orders", nodes=sorted(nodes))], nodes=nodes)
    catalog.publish("cafe", "prod", publish_request(index), "tester")
    seen = all_pages(lambda cursor: catalog.nodes(index.snapshot_id(), 2, cursor))
    assert [item.node for item in seen] == sorted(nodes)
    assert {item.node: item.model_dump(exclude={"node"}, mode="json") for item in seen} == nodes


def test_cursor_of_another_list_is_refused(catalog: CatalogService, locations: LocationService) -> None:
    locations.set_target("cafe", "dev", TargetSettings())
    for number in range(2):
        catalog.publish("cafe", "prod", publish_request(index_of([job(f"job_{number}")]), number), "tester")
    cursor = catalog.snapshots("cafe", "prod", 1).next_cursor
    with pytest.raises(InvalidRequest, match="cursor"):
        catalog.snapshots("cafe", "dev", 1, cursor)


def test_job_summary_counts(catalog: CatalogService) -> None:
    node = {"kind": "model", "relation": "main.a", "drift_key": "k"}
    orders = job(
        "orders", nodes=["a"], relations=["main.a", "main.b"], description="All", triggers=[schedule("orders/schedule")]
    )
    index = index_of([orders], nodes={"a": node})
    catalog.publish("cafe", "prod", publish_request(index), "tester")
    (summary,) = catalog.jobs("cafe", "prod")
    assert summary.model_dump() == {
        "job": "orders",
        "snapshot_id": index.snapshot_id(),
        "description": "All",
        "worker": "container",
        "timeout_seconds": 600,
        "nodes": 1,
        "relations": 2,
        "triggers": ("orders/schedule",),
    }


MISSING: list[tuple[str, Callable[[CatalogService], object]]] = [
    ("tidemill admin target set", lambda catalog: catalog.current("cafe", "dev")),
    ("nothing is published", lambda catalog: catalog.current("cafe", "prod")),
    ("tidemill admin target set", lambda catalog: catalog.snapshots("cafe", "dev")),
    ("tidemill admin target set", lambda catalog: catalog.jobs("cafe", "dev")),
    ("no job 'orders'", lambda catalog: catalog.job("cafe", "prod", "orders")),
    ("no snapshot", lambda catalog: catalog.snapshot("a" * 64)),
    ("no snapshot", lambda catalog: catalog.places("a" * 64)),
    ("no snapshot", lambda catalog: catalog.document("a" * 64, "graph")),
    ("no snapshot", lambda catalog: catalog.nodes("a" * 64)),
]


@pytest.mark.parametrize(("message", "read"), MISSING)
def test_what_is_not_there_says_so(
    catalog: CatalogService, message: str, read: Callable[[CatalogService], object]
) -> None:
    with pytest.raises(NotFound, match=message):
        read(catalog)


def test_unknown_document_of_a_known_snapshot(catalog: CatalogService) -> None:
    index = index_of([job("orders")])
    catalog.publish("cafe", "prod", publish_request(index), "tester")
    with pytest.raises(NotFound, match="no document 'graph'"):
        catalog.document(index.snapshot_id(), "graph")
