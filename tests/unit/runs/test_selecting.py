"""What a rerun from failed builds: a pure decision over the graph (10.2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.runs.selecting import DONE, GraphNode, left_over, with_sources

# a -> b -> c, a -> d; x lies between b and e and is not the job's
GRAPH = {
    "a": GraphNode("model", "db.a"),
    "b": GraphNode("model", "db.b", ("a",)),
    "c": GraphNode("model", "db.c", ("b",)),
    "d": GraphNode("model", "db.d", ("a",)),
    "x": GraphNode("model", "db.x", ("b",)),
    "e": GraphNode("model", "db.e", ("x",)),
}
JOB = ("a", "b", "c", "d", "e")
OK = dict.fromkeys(JOB, "succeeded")


@pytest.mark.parametrize(
    ("statuses", "wanted"),
    [
        (OK, ()),
        (OK | {"c": "failed"}, ("c",)),
        (OK | {"b": "failed", "c": "skipped", "e": "skipped"}, ("b", "c", "e")),
        (OK | {"b": "failed"}, ("b", "c", "e")),
        (OK | {"a": "carried", "d": "warned", "e": "skipped"}, ("e",)),
        ({"a": "succeeded"}, ("b", "c", "d", "e")),
        ({"a": "failed"}, JOB),
    ],
    ids=["all built", "a leaf", "the middle", "also what succeeded below it", "warned counts", "cancelled", "the root"],
)
def test_what_is_left_over(statuses: dict[str, str], wanted: tuple[str, ...]) -> None:
    assert left_over(JOB, statuses, GRAPH) == wanted


def test_a_node_beyond_one_that_the_job_does_not_select_is_below_it_too() -> None:
    assert left_over(("b", "e"), {"b": "failed", "e": "succeeded"}, GRAPH) == ("b", "e")


def test_a_model_without_a_relation_is_never_reported_and_fails_nothing() -> None:
    graph = {**GRAPH, "b": GraphNode("model", None, ("a",))}
    assert left_over(JOB, {n: "succeeded" for n in JOB if n != "b"}, graph) == ()
    assert left_over(JOB, OK | {"a": "failed"}, graph) == JOB


def test_what_is_selected_and_no_longer_known_is_built() -> None:
    assert left_over(("gone",), {}, {}) == ("gone",)


LOADING = {
    "source:raw": GraphNode("source", "db.raw", ("source:cursor",)),
    "source:cursor": GraphNode("source", "db.cursor"),
    "source:other": GraphNode("source", "db.other"),
    "model:a": GraphNode("model", "db.a", ("source:raw",)),
    "model:b": GraphNode("model", "db.b", ("model:a", "source:other")),
}


def test_sources_are_loaded_together_or_not_at_all() -> None:
    """SQLBuild loads all managed sources above the selected nodes, or none."""
    assert with_sources(["model:a"], LOADING, LOADING) == ("model:a",)
    assert with_sources(["model:a", "source:raw"], LOADING, LOADING) == ("model:a", "source:cursor", "source:raw")
    statuses = dict.fromkeys(LOADING, "succeeded") | {
        "source:raw": "failed",
        "model:a": "skipped",
        "model:b": "skipped",
    }
    assert left_over(LOADING, statuses, LOADING) == tuple(sorted(LOADING))


@given(st.data())
def test_nothing_unbuilt_is_forgotten_and_nothing_built_hangs_on_what_is_rebuilt(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9))
    parents = {n: data.draw(st.sets(st.integers(0, n - 1), max_size=3)) if n else set() for n in range(size)}
    graph = {str(n): GraphNode("model", f"db.{n}", tuple(map(str, sorted(parents[n])))) for n in range(size)}
    selected = data.draw(st.sets(st.sampled_from(sorted(graph))))
    told = st.sampled_from(["succeeded", "failed", "skipped", "warned", "carried"])
    statuses = data.draw(st.dictionaries(st.sampled_from(sorted(graph)), told))
    rest = set(left_over(selected, statuses, graph))
    assert rest <= selected
    assert {node for node in selected if statuses.get(node) not in DONE} <= rest
    for node in rest:
        assert {child for child in selected if node in graph[child].depends_on} <= rest
