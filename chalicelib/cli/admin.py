"""``tidemill admin``: the store, locations, targets and tokens; over the API, or on the database with ``--store``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ..kernel.errors import UsageError
from ..kernel.limits import SCHEDULER_SHARDS_MAX
from .administration import administration, store_administration
from .command import Session, command, noun
from .options import StoreAddress
from .output import Facts, Outcome, Table, cell
from .views import chosen, facts

_DAY_SECONDS = 24 * 3_600

_app = noun("admin", "Administration: the store, locations, targets, pools, tokens.")
_store = noun("store", "The control store, directly on the database.")
_location = noun("location", "Locations: deployed project environments.")
_target = noun("target", "Targets: the warehouses of a location.")
_pool = noun("pool", "Pools: the slots that runs share.")
_token = noun("token", "Tokens of operators and locations.")

LocationArgument = Annotated[str, typer.Argument(metavar="LOCATION", help="Name of the location.")]
TargetArgument = Annotated[str, typer.Argument(metavar="TARGET", help="Name of the target.")]
Permissions = Annotated[
    list[str] | None,
    typer.Option("--permission", metavar="NAME", help="publish, work, metadata or roles; may be repeated."),
]


def add_to(app: typer.Typer) -> None:
    """Add ``admin``."""
    for part in (_store, _location, _target, _pool, _token):
        _app.add_typer(part)
    app.add_typer(_app)


# --- store


@command(_store, "init")
def init_store(session: Session, store: StoreAddress = None) -> Outcome:
    """Make the roles and tables in an empty database; one that has them already is left alone."""
    from ..database.store import initialise_store, schema_checksum

    del session
    created = initialise_store(_address(store))
    document = {"created": created, "schema_checksum": schema_checksum()}
    return Outcome(document, ["the store was made" if created else "the store is there already"], "the store is made")


@command(_store, "check")
def check_store_here(session: Session, store: StoreAddress = None) -> Outcome:
    """Check that the store was made from this release's schema, and say when retention last came to its end."""
    from ..database.store import check_store, schema_checksum

    del session
    check_store(_address(store))
    finished = _retention_finished(_address(store))
    document = {"ok": True, "schema_checksum": schema_checksum(), "retention_finished_at": finished}
    return Outcome(document, ["the store fits this release", f"retention last finished: {finished or 'never'}"])


@command(_app, "reshard")
def reshard_scheduler(
    session: Session,
    count: Annotated[int, typer.Argument(metavar="N", min=1, max=SCHEDULER_SHARDS_MAX, help="How many shards.")],
    store: StoreAddress = None,
) -> Outcome:
    """Spread schedules and runs over N scheduler shards, while everything goes on."""
    with store_administration(session, _address(store)) as admin:
        shards = admin.reshard(count)
    return _change({"shards": shards}, f"there are {len(shards)} scheduler shards")


# --- locations and targets


@command(_location, "list")
def list_locations(session: Session, store: StoreAddress = None) -> Outcome:
    """List locations with their targets."""
    with administration(session, store) as admin:
        items = admin.locations()
    rows = [(cell(one["location"]), cell(one["disabled"]), _names(one)) for one in items]
    table = Table(
        ("location", "disabled", "targets"), rows, empty="no locations; add one with `tidemill admin location add`"
    )
    return Outcome({"items": items, "next_cursor": None}, [table])


@command(_location, "add")
def add_location(session: Session, name: LocationArgument, store: StoreAddress = None) -> Outcome:
    """Add a location; adding it again changes nothing."""
    with administration(session, store) as admin:
        added = admin.add_location(name)
    return _change({"location": name, "added": added}, f"the location {name} exists")


@command(_location, "disable")
def disable_location(session: Session, name: LocationArgument, store: StoreAddress = None) -> Outcome:
    """Give a location no more runs and publications; what runs goes on."""
    return _set_disabled(session, name, store, disabled=True)


@command(_location, "enable")
def enable_location(session: Session, name: LocationArgument, store: StoreAddress = None) -> Outcome:
    """Let a disabled location work again."""
    return _set_disabled(session, name, store, disabled=False)


@command(_target, "set")
def set_target(
    session: Session,
    place: LocationArgument,
    name: TargetArgument,
    *,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="NAME", help="Database that it writes; default: LOCATION/TARGET."),
    ] = None,
    settle: Annotated[
        int | None, typer.Option("--settle", metavar="SECONDS", min=0, help="How long the warehouse may go on alone.")
    ] = None,
    single_writer: Annotated[
        bool, typer.Option("--single-writer", help="One run at a time, as for a DuckDB file.")
    ] = False,
    case_rule: Annotated[str, typer.Option("--case-rule", help="lower, upper or preserve.")] = "lower",
    variables: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Variable of the build, or NAME=secret:REF; may be repeated."),
    ] = None,
    store: StoreAddress = None,
) -> Outcome:
    """Create a target, or replace its settings as a whole."""
    settings = {
        "warehouse": warehouse,
        "settle_seconds": settle,
        "single_writer": single_writer,
        "case_rule": case_rule,
        "environment": _environment(variables or []),
    }
    with administration(session, store) as admin:
        found = admin.set_target(place, name, settings)
    return _change(found, f"the target {place}/{name} is set")


# --- pools


@command(_pool, "set")
def set_pool(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the pool; a new one is made.")],
    limit: Annotated[int, typer.Argument(metavar="LIMIT", min=0, help="Slots in all; 0 lets no run of it start.")],
    store: StoreAddress = None,
) -> Outcome:
    """Set how many slots a pool has. Runs that hold some keep them, also above the new limit."""
    with administration(session, store) as admin:
        found = admin.set_pool(name, limit)
    return _change(found, f"the pool {name} has {limit} slots")


# --- tokens


@command(_token, "list")
def list_tokens(session: Session, store: StoreAddress = None) -> Outcome:
    """List tokens, newest first; never their secrets."""
    with administration(session, store) as admin:
        items = admin.tokens()
    columns = ("token_id", "kind", "scope", "expires_at", "revoked_at", "last_used_at")
    return Outcome({"items": items, "next_cursor": None}, [Table(*chosen(columns, items), empty="no tokens")])


@command(_token, "issue")
def issue_token(
    session: Session,
    permission: Permissions = None,
    *,
    operator: Annotated[bool, typer.Option("--operator", help="A token that may do everything.")] = False,
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="Days until it expires.")] = 90,
    store: StoreAddress = None,
) -> Outcome:
    """Issue a token for --location (and --target), or an operator's. Its secret is shown once, here."""
    with administration(session, store) as admin:
        issued = admin.issue_token(*_token_request(session, permission or [], operator=operator), days * _DAY_SECONDS)
    receipt = f"token {issued['token_id']} was issued; end it with `tidemill admin token revoke {issued['token_id']}`"
    return Outcome(issued, [facts(issued)], receipt, warnings=["the secret is shown this once; keep it now"])


@command(_token, "revoke")
def revoke_token(
    session: Session,
    token_id: Annotated[str, typer.Argument(metavar="TOKEN_ID", help="Id of the token (tok_...), not its secret.")],
    store: StoreAddress = None,
) -> Outcome:
    """End a token at once."""
    with administration(session, store) as admin:
        revoked = admin.revoke_token(token_id)
    return _change({"token_id": token_id, "revoked": revoked}, f"the token {token_id} is revoked")


def _set_disabled(session: Session, name: str, store: str | None, *, disabled: bool) -> Outcome:
    with administration(session, store) as admin:
        admin.set_disabled(name, disabled=disabled)
    return _change(
        {"location": name, "disabled": disabled}, f"the location {name} is {'disabled' if disabled else 'enabled'}"
    )


def _change(document: dict[str, Any], receipt: str) -> Outcome:
    return Outcome(document, [Facts([(name, cell(value)) for name, value in document.items()])], receipt)


def _names(location: dict[str, Any]) -> str:
    return cell(", ".join(target["target"] for target in location.get("targets") or []))


def _address(store: str | None) -> str:
    if not store:
        raise UsageError.of_field("--store", "give the address of the database, or set TIDEMILL_DATABASE_URL")
    return store


def _retention_finished(address: str) -> str | None:
    from ..database import Database
    from ..kernel.clock import instant_text
    from ..scheduler.retention import retention_finished_at

    database = Database(address)
    try:
        with database.transaction() as tx:
            finished = retention_finished_at(tx)
    finally:
        database.close()
    return None if finished is None else instant_text(finished)


def _environment(variables: Sequence[str]) -> dict[str, str]:
    environment: dict[str, str] = {}
    for text in variables:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError.of_field("--env", "write it as NAME=VALUE or NAME=secret:REF")
        environment[name] = value
    return environment


def _token_request(session: Session, permissions: Sequence[str], *, operator: bool) -> tuple[str, dict[str, Any]]:
    if operator and (permissions or session.options.location or session.options.target):
        raise UsageError("--operator stands for everything; leave --permission, --location and --target out")
    if operator:
        return "operator", {}
    if not session.options.location:
        raise UsageError.of_field("--location", "name the location that the token is for, or give --operator")
    if not permissions:
        raise UsageError.of_field("--permission", "name at least one of publish, work, metadata, roles")
    return "location", {
        "location": session.options.location,
        "target": session.options.target,
        "permissions": list(permissions),
    }
