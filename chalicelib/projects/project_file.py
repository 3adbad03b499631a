"""``tidemill.toml``: what a project is called, where its jobs are, and which targets it builds."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from ..authoring.base import Flag, Key, Text, Texts, Whole
from ..kernel.errors import FieldError, InvalidDeclaration
from ..kernel.limits import SETTLE_DEFAULT_SECONDS, SETTLE_MAX_SECONDS, SETTLE_SINGLE_WRITER_SECONDS
from ..kernel.records import KEY_PATTERN, Record

FILE_NAME = "tidemill.toml"

# Written by the tools and by us; a change there is no change of the project.
ALWAYS_EXCLUDED = (
    ".*",
    "__pycache__",
    "target",
    "logs",
    "dbt_packages",
    "*.duckdb",
    "*.duckdb.wal",
    "*.pyc",
)


class TargetSettings(Record):
    """One ``[targets.NAME]`` table. ``tool_target`` names the target in the tool's own configuration."""

    tool_target: Text | None = None
    profiles_dir: Text | None = None
    single_writer: Flag = False
    warehouse: Text | None = None
    settle_seconds: Annotated[Whole, Field(ge=0, le=SETTLE_MAX_SECONDS)] | None = None
    database: Text | None = None

    def effective_settle_seconds(self) -> int:
        """The declared settle time, or the default: none for an embedded file, 900 s for a remote warehouse."""
        if self.settle_seconds is not None:
            return self.settle_seconds
        return SETTLE_SINGLE_WRITER_SECONDS if self.single_writer else SETTLE_DEFAULT_SECONDS


class ProjectFile(Record):
    """The whole file, and the folder that it was read from.

    ``tool_dir`` is the folder of the dbt or SQLBuild project below this one. SQLBuild refuses Python files that are not
    its own, so a jobs file cannot stand beside ``sqlbuild_project.toml``.
    """

    folder: Path
    name: Key
    location: Key
    modules: Texts = ()
    jobs: Annotated[tuple[()], Field(max_length=0)] | None = None
    python: Text | None = None
    tool_dir: Text = "."
    default_target: Text | None = None
    watch: Texts = (".",)
    exclude: Texts = ()
    targets: dict[Key, TargetSettings] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.jobs is not None and self.modules:
            raise ValueError("jobs: give modules, or jobs = [] for a project without jobs, not both")
        if self.jobs is None and not self.modules:
            raise ValueError('modules: name the modules with the jobs, as in modules = ["jobs"], or give jobs = []')
        if self.default_target is not None and self.default_target not in self.targets:
            raise ValueError(f"default_target: there is no [targets.{self.default_target}]")
        if not self.tool_folder.is_relative_to(self.folder):
            raise ValueError("tool_dir: must be a folder inside the project")
        return self

    @property
    def tool_folder(self) -> Path:
        """Where the tool runs: its own project, absolute."""
        return (self.folder / self.tool_dir).resolve()

    def choose_target(self, wanted: str | None) -> tuple[str, TargetSettings]:
        """The target asked for, else the default one, else the only one. Raises ``InvalidDeclaration``."""
        name = wanted or self.default_target or (next(iter(self.targets)) if len(self.targets) == 1 else None)
        names = ", ".join(sorted(self.targets))
        if name is None:
            raise InvalidDeclaration.of_field(
                "default_target", f"{FILE_NAME} has several targets ({names}); choose one"
            )
        if name not in self.targets:
            raise InvalidDeclaration.of_field("target", f"{FILE_NAME} has no [targets.{name}]; it has {names}")
        return name, self.targets[name]

    def excluded(self) -> tuple[str, ...]:
        """Name patterns whose changes are no change of the project."""
        return (*ALWAYS_EXCLUDED, *self.exclude)


def load_project_file(project_dir: Path) -> ProjectFile:
    """Read ``tidemill.toml`` in ``project_dir``. Raises ``InvalidDeclaration`` naming the file and the key."""
    folder = project_dir.resolve()
    values = _read(folder)
    if "folder" in values:
        raise _wrong([FieldError("folder", InvalidDeclaration.code, "unknown key")])
    name = values.setdefault("name", folder.name)
    values.setdefault("location", name)
    try:
        return ProjectFile.model_validate({**values, "folder": folder})
    except ValidationError as problem:
        raise _wrong([_field_error(error) for error in problem.errors(include_url=False)]) from None


def _read(folder: Path) -> dict[str, Any]:
    path = folder / FILE_NAME
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidDeclaration(
            f"there is no {FILE_NAME} in {folder}; run this in a project folder, or make the file "
            "(its keys are in docs/reference/project-file.md)"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InvalidDeclaration(f"{FILE_NAME} cannot be read: {problem}") from None


def _wrong(fields: list[FieldError]) -> InvalidDeclaration:
    return InvalidDeclaration(
        f"{FILE_NAME}: " + "; ".join(f"{field.field}: {field.message}" for field in fields), fields=fields
    )


def _field_error(error: Mapping[str, Any]) -> FieldError:
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error" and not key:
        key, _, message = message.partition(": ")
    return FieldError(key, InvalidDeclaration.code, _plain(error["type"], message, key))


def _plain(kind: str, message: str, key: str) -> str:
    if kind == "extra_forbidden":
        return "unknown key; check its spelling"
    if kind == "missing":
        return "add at least one target, as in [targets.dev]" if key == "targets" else "is missing"
    if kind == "string_pattern_mismatch":
        return f"use {KEY_PATTERN.strip('^$')}"
    if kind in {"too_long", "tuple_type"} and key == "jobs":
        return "only jobs = [] may stand here; jobs themselves are declared in the modules"
    return message
