"""What the tests of the worker share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.workers.doubles import processes_with
from tests.unit.workers.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()
    assert processes_with(str(made.project)) == []
