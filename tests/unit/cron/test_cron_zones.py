from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.cron import local_slot, tzdata_version
from chalicelib.cron.zones import zone, zone_names
from chalicelib.kernel.errors import InvalidSchedule
from tests.unit.cron.cron_oracle import at

ROOT = Path(__file__).parents[3]
ASK = (
    "from datetime import datetime, UTC; from chalicelib.cron import next_after, local_slot;"
    "t = datetime(2026, 3, 8, 6, 30, tzinfo=UTC); d = next_after('30 2 * * *', 'America/New_York', t);"
    "print(d.isoformat(), local_slot('America/New_York', d))"
)


@pytest.mark.parametrize("machine_zone", ["Asia/Tokyo", "America/New_York", ":/nowhere"])
def test_the_zone_of_the_machine_and_its_files_do_not_matter(machine_zone: str, tmp_path: Path) -> None:
    broken = tmp_path / "America" / "New_York"
    broken.parent.mkdir()
    broken.write_bytes(b"not a zone file")
    environment = {**os.environ, "TZ": machine_zone, "PYTHONTZPATH": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.split() == ["2026-03-08T07:00:00+00:00", "2026-03-08T03:00"]


def test_every_listed_zone_can_be_read() -> None:
    assert len(zone_names()) > 500
    for name in zone_names():
        assert zone(name).key == name


def test_the_version_of_the_database_is_known() -> None:
    assert tzdata_version()[:4].isdigit()
    assert len(tzdata_version()) == 5


def test_a_name_outside_the_list_reads_no_file() -> None:
    for name in ("../__init__.py", "Factory", "/etc/localtime", "America", "Europe/Berlin/"):
        with pytest.raises(InvalidSchedule, match="timezone: "):
            zone(name)


def test_a_slot_is_the_wall_time_that_is_shown() -> None:
    assert local_slot("America/New_York", at("2026-11-01T06:30Z")) == "2026-11-01T01:30"
    assert local_slot("Asia/Kathmandu", at("2026-11-01T06:30:59.9Z")) == "2026-11-01T12:15"
