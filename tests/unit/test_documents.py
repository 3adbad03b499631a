"""The documents: every link leads somewhere, and none names a machine or a package host."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for pattern in ("*.md", "docs/**/*.md", "examples/*/README.md") for page in ROOT.glob(pattern))
_LINK = re.compile(r"\]\((?!https?://|#)([^)#\s]+)(#[^)]*)?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(page.read_text())
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        found = page.parent / target
        assert found.exists(), f"{target} is not there"
        assert not anchor or anchor in anchors(found), f"{target} has no heading {anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_has_one_title_and_names_no_machine(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1
    assert not re.search(r"/(home|root|Users)/", page.read_text())


def test_every_decision_is_listed() -> None:
    listed = (ROOT / "docs" / "adr" / "README.md").read_text()
    pages = [page.name for page in (ROOT / "docs" / "adr").glob("0*.md")]
    assert pages
    assert all(f"({name})" in listed for name in pages)
