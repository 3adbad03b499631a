"""``tidemill compile`` and ``tidemill publish``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..kernel.errors import OutputFailed, UsageError
from .checking import differences
from .command import Session, command
from .context import DATA_FOLDER, find_project_folder
from .options import ClientId, ProjectFolder, Python
from .output import Block, Facts, Outcome, Table, cell

if TYPE_CHECKING:
    from ..projects.bundle import Bundle
    from ..projects.compilation import Compilation

_DIFFERENT = 3


def add_to(app: typer.Typer) -> None:
    """Add ``compile`` and ``publish``."""
    command(app, "compile")(compile_here)
    command(app, "publish")(publish)


def compile_here(
    session: Session,
    out: Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Write the bundle into this folder.")] = None,
    project: ProjectFolder = None,
    python: Python = None,
) -> Outcome:
    """Compile the project in its own interpreter: check its jobs, resolve its selectors. Needs no server."""
    compilation = compiled(session, project, python)
    if out is not None:
        from ..projects.bundle import write_bundle

        with _writing(out):
            write_bundle(compilation.bundle, out)
        session.say(f"bundle written to {out}; publish it with `tidemill publish {out}`")
    document = {**_summary(compilation.bundle), "location": compilation.location, "target": compilation.target}
    document["warnings"] = [
        {"code": one.code, "subject": one.subject, "message": one.message} for one in compilation.warnings
    ]
    return Outcome({**document, "out": str(out) if out else None}, _compiled_blocks(compilation))


def publish(
    session: Session,
    bundle: Annotated[
        Path | None, typer.Argument(metavar="[BUNDLE]", help="Bundle folder of `compile --out`; default: compile now.")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Publish nothing; exit 3 and name what differs from the current snapshot.")
    ] = False,
    expect_current: Annotated[
        str | None, typer.Option("--expect-current", metavar="ID", help="Publish only if this snapshot is current.")
    ] = None,
    project: ProjectFolder = None,
    python: Python = None,
    identity: ClientId = None,
) -> Outcome:
    """Make a compiled project the current snapshot of its location and target."""
    if check and (expect_current or identity):
        raise UsageError("--check publishes nothing; leave --expect-current and --id out")
    if bundle is not None and (project or python):
        raise UsageError("BUNDLE is compiled already; leave --project and --python out")
    ready, location, target, fingerprint = _ready(session, bundle, project, python)
    if check:
        return _checked(session, ready, location, target)
    from ..client.publishing import publish_bundle

    publication_id = session.announce_id(identity, "pub", "publication id")
    result = publish_bundle(
        session.api,
        ready,
        location=location,
        target=target,
        publication_id=publication_id,
        connection_fingerprint=fingerprint,
        expect_current=expect_current,
        say=session.say,
    )
    receipt = f"publication {publication_id} made snapshot {ready.snapshot_id} current in {location}/{target}"
    return Outcome(result, _published_blocks(result), receipt, warnings=result.get("warnings") or ())


# --- compiling


def compiled(session: Session, project: Path | None, python: Path | None) -> Compilation:
    """Compile a folder, by default the nearest with a ``tidemill.toml``; warnings go to stderr."""
    from ..projects.compile import compile_project

    folder = project or find_project_folder(session.folder) or session.folder
    work_dir = _work_dir(folder, session.options.target)
    session.say(f"compiling {folder.name or folder}")
    with _writing(work_dir):
        compilation = compile_project(
            folder, target=session.options.target, python=python, now=session.clock.now(), work_dir=work_dir
        )
    for one in compilation.warnings:
        session.say(f"warning: {one.subject}: {one.message} ({one.code})")
    return compilation


def _work_dir(folder: Path, target: str | None) -> Path:
    """Kept, so that the tools find their caches again; hidden from git, so that it makes no project dirty."""
    if not folder.is_dir():
        raise UsageError.of_field("--project", f"{folder} is no folder")
    data = folder / DATA_FOLDER
    with _writing(data):
        data.mkdir(mode=0o700, exist_ok=True)
        ignore = data / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    return data / "compile" / (target or "default")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """A full disk or a read-only folder becomes one clear error."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise OutputFailed(f"{problem.filename or path}: {reason}; free it, or choose another folder") from None


def _ready(
    session: Session, bundle: Path | None, project: Path | None, python: Path | None
) -> tuple[Bundle, str, str, str | None]:
    """The bundle, its location and target, and the connection's fingerprint where it is known."""
    if bundle is not None:
        from ..projects.bundle import read_bundle

        return read_bundle(bundle), *session.place(), None
    compilation = compiled(session, project, python)
    location = session.options.location or compilation.location
    return compilation.bundle, location, compilation.target, compilation.connection_fingerprint


def _summary(bundle: Bundle) -> dict[str, Any]:
    index = bundle.index
    return {
        "snapshot_id": bundle.snapshot_id,
        "project": index.project,
        "tool": index.tool,
        "tool_version": index.tool_version,
        "baseline": index.baseline,
        "nodes": len(index.nodes),
        "documents": len(index.documents),
        "jobs": [
            {
                "job": job.job,
                "nodes": len(job.nodes),
                "relations": len(job.relations),
                "triggers": [trigger.name for trigger in job.triggers],
            }
            for job in index.jobs.values()
        ],
    }


def _compiled_blocks(compilation: Compilation) -> list[Block]:
    summary = _summary(compilation.bundle)
    rows = [
        (cell(job["job"]), cell(job["nodes"]), cell(job["relations"]), cell(job["triggers"])) for job in summary["jobs"]
    ]
    return [
        Facts([(name, cell(summary[name])) for name in ("snapshot_id", "project", "tool", "tool_version", "nodes")]),
        Table(("job", "nodes", "relations", "triggers"), rows, empty="no jobs"),
    ]


# --- publishing


def _published_blocks(result: dict[str, Any]) -> list[Block]:
    triggers = result.get("triggers") or {}
    pairs = [
        (name, cell(result.get(name))) for name in ("snapshot_id", "publication_id", "location", "target", "changed")
    ]
    pairs.append(("jobs", cell(result.get("jobs"))))
    pairs += [(f"triggers {name}", cell(names)) for name, names in triggers.items() if names]
    return [Facts(pairs)]


def _checked(session: Session, bundle: Bundle, location: str, target: str) -> Outcome:
    document = differences(session.api, bundle, location=location, target=target)
    if not document["changed"]:
        return Outcome(document, [f"{location}/{target}: snapshot {bundle.snapshot_id} is current"])
    rows = [
        (kind, what, name)
        for kind in ("nodes", "jobs")
        for what in ("added", "changed", "removed")
        for name in document[kind][what]
    ]
    nothing = "no node and no job differs; the git revision, the tool's version or a document does"
    blocks: list[Block] = [
        Facts([("compiled", document["snapshot_id"]), ("current", cell(document["current_snapshot_id"]))]),
        Table(("kind", "difference", "name"), rows, empty=nothing),
    ]
    return Outcome(document, blocks, exit_code=_DIFFERENT)
