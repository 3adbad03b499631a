"""What a job runs: an SQLBuild build, a dbt command, or any command.

The same records travel in the published definition, told apart by ``kind``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .base import Flag, Many, Positive, Record, Selectors, Text, Texts, Variables, Whole

Allowance = Literal[
    "snapshot_full_refresh",
    "table_type_downgrade",
    "retention_decrease",
    "missing_migration_origin",
    "snapshot_schema_change",
]


class SqlBuild(Record):
    """``sqb build``: every option that changes what is built. ``allow`` lists the confirmations that are granted.

    ``start`` and ``end`` override the cursor of incremental models; ``test_timeout`` is a duration such as
    ``"30s"`` or ``"disabled"``. ``target`` names a target of the tool when it differs from the project file's.
    """

    kind: Literal["sqb"] = Field(default="sqb", repr=False)
    select: Selectors = ()
    exclude: Selectors = ()
    full_refresh: Flag = False
    fail_fast: Flag = False
    vars: Variables = Field(default_factory=dict)
    target: Text | None = None
    concurrency: Positive | None = None
    start: Text | None = None
    end: Text | None = None
    max_microbatches: Positive | None = None
    load: Literal["on", "off", "reload"] | None = None
    tests: Flag = True
    audits: Flag = True
    python: Flag = True
    defer_to: Text | None = None
    defer_sources_to: Text | None = None
    clone_from: Text | None = None
    test_timeout: Text | None = None
    warehouse: Text | None = None
    allow: Many[Allowance] = ()


class Dbt(Record):
    """``dbt build`` or one of its parts. ``selector`` names an entry of ``selectors.yml``."""

    kind: Literal["dbt"] = Field(default="dbt", repr=False)
    command: Literal["build", "run", "test", "seed", "snapshot"] = "build"
    select: Selectors = ()
    exclude: Selectors = ()
    selector: Text | None = None
    full_refresh: Flag = False
    fail_fast: Flag = False
    vars: Variables = Field(default_factory=dict)
    target: Text | None = None
    threads: Positive | None = None


class Command(Record):
    """Any program: ``argv`` without a shell, run in ``cwd`` (relative to the project folder)."""

    kind: Literal["command"] = Field(default="command", repr=False)
    argv: Annotated[Texts, Field(min_length=1)]
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Text | None = None
    ok_exit_codes: Annotated[Many[Whole], Field(min_length=1)] = (0,)


Build = Annotated[SqlBuild | Dbt | Command, Field(discriminator="kind")]
