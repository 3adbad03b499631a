from __future__ import annotations

import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import bench
from bench.__main__ import NAMES, main
from bench.document import Document, rounded
from bench.peers import peers_of

DOCUMENT = Document(
    "ticks",
    {"all_ticked_seconds": 1.25, "schedules": 10_000, "postgres": "fsync=on"},
    {"croniter_microseconds_per_next": None, "croniter_reason": "no such package"},
    {"croniter": None},
)


def test_the_json_is_one_line_with_four_keys() -> None:
    text = DOCUMENT.to_json()
    assert "\n" not in text
    assert json.loads(text) == {
        "name": "ticks",
        "figures": {"all_ticked_seconds": 1.25, "schedules": 10_000, "postgres": "fsync=on"},
        "peers": {"croniter_microseconds_per_next": None, "croniter_reason": "no such package"},
        "ratios": {"croniter": None},
    }


def test_a_figure_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Document("ticks", {"seconds": float("nan")}).to_json()


def test_the_table_shows_every_value() -> None:
    lines = DOCUMENT.to_table().splitlines()
    assert lines[0] == "ticks"
    assert [line.split() for line in lines[1:]] == [
        ["figures", "all_ticked_seconds", "1.25"],
        ["figures", "schedules", "10,000"],
        ["figures", "postgres", "fsync=on"],
        ["peers", "croniter_microseconds_per_next", "-"],
        ["peers", "croniter_reason", "no", "such", "package"],
        ["ratios", "croniter", "-"],
    ]


@pytest.mark.parametrize(("value", "shown"), [(0.123456, 0.1235), (12345.6, 12350.0), (0.0, 0.0)])
def test_figures_have_four_digits(value: float, shown: float) -> None:
    assert rounded(value) == shown


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_a_module_that_measures(name: str) -> None:
    assert callable(import_module(f"bench.{name}").measure)


def test_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["speed"])
    assert ended.value.code == 2
    assert "invalid choice: 'speed'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("benchmark", "names"),
    [
        ("ticks", ["croniter", "apscheduler", "dagster", "airflow"]),
        ("claims", ["procrastinate", "pgqueuer"]),
        ("burst", ["airflow", "dagster", "prefect"]),
    ],
)
def test_every_peer_is_pinned_and_has_its_program(benchmark: str, names: list[str]) -> None:
    peers = list(peers_of(benchmark))
    assert [peer.name for peer in peers] == names
    assert all("==" in requirement for peer in peers for requirement in peer.requirements)
    assert all(peer.program_file.is_file() and peer.version for peer in peers)


def test_every_table_of_the_peers_belongs_to_a_benchmark() -> None:
    folder = Path(next(iter(bench.__path__)))
    assert set(tomllib.loads((folder / "peers.toml").read_text(encoding="utf-8"))) == {"ticks", "claims", "burst"}


def test_only_the_soak_takes_minutes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["claims", "--minutes", "3"])
    assert ended.value.code == 2
    assert "claims takes no --minutes" in capsys.readouterr().err


def test_the_figures_of_each_peer_stand_under_its_name() -> None:
    document = Document("burst", {}, {"airflow": {"version": "3.3.2", "unavailable": "no such package"}})
    assert json.loads(document.to_json())["peers"]["airflow"]["unavailable"] == "no such package"
    lines = [line.split(None, 2) for line in document.to_table().splitlines()[1:]]
    assert lines == [["peers", "airflow.version", "3.3.2"], ["peers", "airflow.unavailable", "no such package"]]
