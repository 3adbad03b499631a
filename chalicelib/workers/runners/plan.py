"""What a runner is told, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ...authoring.builds import Build
from ...runs.model import NodeReport, RunInputs


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One run, verified and ready.

    ``build`` has the run's inputs applied; ``extra_environment`` is what inputs map to; ``run_folder`` is new, private
    and never used again; ``profiles_dir`` is where dbt finds its profile; ``secrets`` are values to mask in the log.
    """

    inputs: RunInputs
    build: Build
    run_folder: Path
    project_folder: Path
    python: Path
    profiles_dir: Path
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    target_environment: Mapping[str, str] = field(default_factory=dict)
    extra_options: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """What is executed. ``live_records`` grows while the tool works, one JSON object a line; ``None``: it tells nothing."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    live_records: Path | None


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong, in the tool's own words."""

    code: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the tool left behind.

    ``document`` says that a result document of this very run was found; ``touched`` counts the nodes in it, or in the
    live records without one; ``nodes`` are the reports that say more than the live records did.
    """

    document: bool = False
    touched: int = 0
    warnings: int = 0
    failure: Failure | None = None
    nodes: tuple[NodeReport, ...] = ()
    summary: Mapping[str, object] = field(default_factory=dict)

    def with_touched(self, touched: int) -> Evidence:
        """The same with another count, for a tool that left no document."""
        return replace(self, touched=touched)


class Runner(Protocol):
    """A tool's side of one run."""

    def launch(self, plan: RunPlan) -> Launch:
        """Command line, environment and folder; writes the files that the command line names."""

    def parse_record(self, record: Mapping[str, object]) -> NodeReport | None:
        """The finished node that a live record tells of, if it does."""

    def read_evidence(self, plan: RunPlan, log_tail: str) -> Evidence:
        """Read the result document; ``log_tail`` is the end of the log. A broken document counts as none."""
