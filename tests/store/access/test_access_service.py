from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from chalicelib.access import AccessService, IssuedToken, TokenScope
from chalicelib.access.secret import hash_of, mint_secret
from chalicelib.database import Database, Transaction
from chalicelib.kernel.errors import (
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    TidemillError,
    TokenExpired,
    TokenRevoked,
)
from chalicelib.kernel.ids import IdSource
from chalicelib.locations import LocationService, TargetSettings
from tests.doubles import HandClock, lowering_over

PLACE = TokenScope(location="berlin", target="prod", permissions=("publish", "work"))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def timed(application_url: str, clock: HandClock) -> Iterator[Database]:
    opened = Database(application_url, connections=2, read_now=clock.read_now)
    yield opened
    opened.close()


@pytest.fixture
def access(timed: Database, clock: HandClock) -> AccessService:
    locations = LocationService(timed, lowering_over(timed))
    locations.add("berlin")
    locations.set_target("berlin", "prod", TargetSettings())
    return AccessService(timed, IdSource(clock), random.Random(7))


def last_use(access: AccessService, token: IssuedToken) -> object:
    return next(item.last_used_at for item in access.list_tokens().items if item.token_id == token.token_id)


def test_location_token_authenticates_with_its_scope(access: AccessService) -> None:
    token = access.issue("location", PLACE, 3_600)
    principal = access.authenticate(token.secret)
    assert (principal.kind, principal.token_id, principal.scope) == ("location", token.token_id, PLACE)
    assert principal.name == f"location:{token.token_id}"


def test_operator_token_needs_no_scope(access: AccessService) -> None:
    assert access.authenticate(access.issue("operator", TokenScope()).secret).kind == "operator"


def test_only_the_hash_is_stored(access: AccessService, owner_url: str) -> None:
    token = access.issue("location", PLACE, 3_600)
    with psycopg.connect(owner_url) as connection:
        row = connection.execute("SELECT access_tokens::text, secret_hash FROM access_tokens").fetchone()
    assert row is not None
    assert token.secret not in row[0]
    assert row[1] == hash_of(token.secret)


def test_no_representation_shows_the_secret(access: AccessService) -> None:
    token = access.issue("location", PLACE, 3_600)
    shown = repr(token) + str(token) + repr(access.authenticate(token.secret)) + repr(access.list_tokens())
    assert token.secret not in shown


def test_token_ends_with_its_lifetime(access: AccessService, clock: HandClock) -> None:
    token = access.issue("location", PLACE, 3_600)
    assert token.expires_at == clock.now() + timedelta(hours=1)
    clock.advance(3_599)
    access.authenticate(token.secret)
    clock.advance(1)
    with pytest.raises(TokenExpired):
        access.authenticate(token.secret)


def test_revocation_acts_at_once_and_once(access: AccessService) -> None:
    token = access.issue("location", PLACE, 3_600)
    access.authenticate(token.secret)
    assert access.revoke(token.token_id) is True
    with pytest.raises(TokenRevoked):
        access.authenticate(token.secret)
    assert access.revoke(token.token_id) is False


def test_revoking_what_does_not_exist_is_told(access: AccessService) -> None:
    with pytest.raises(NotFound, match="tidemill admin token list"):
        access.revoke("tok_none")


def test_last_use_is_noted_at_most_once_a_minute(access: AccessService, clock: HandClock) -> None:
    token = access.issue("location", PLACE, 3_600)
    assert last_use(access, token) is None
    access.authenticate(token.secret)
    first = last_use(access, token)
    assert first == clock.now()
    clock.advance(59)
    access.authenticate(token.secret)
    assert last_use(access, token) == first
    clock.advance(1)
    access.authenticate(token.secret)
    assert last_use(access, token) == clock.now()


def test_unknown_secret_is_refused_without_repeating_it(access: AccessService) -> None:
    secret = mint_secret("operator", random.Random(99))
    with pytest.raises(NotAuthenticated) as refusal:
        access.authenticate(secret)
    assert secret not in str(refusal.value)


@pytest.mark.parametrize("mistake", ["", "tmo_short", "x" * 60, "é", "\x00", "last"])
def test_malformed_secret_never_reaches_the_database(mistake: str) -> None:
    """The database of this service cannot be reached, and that does not show."""
    service = AccessService(Database("host=/nonexistent"), IdSource(HandClock()), random.Random(1))
    secret = mint_secret("operator", random.Random(1))
    with pytest.raises(NotAuthenticated):
        service.authenticate(secret[:-1] + ("0" if secret[-1] != "0" else "1") if mistake == "last" else mistake)


@pytest.mark.parametrize(
    ("scope", "seconds", "kind", "field"),
    [
        (TokenScope(permissions=("work",)), 60, "location", "scope.location"),
        (TokenScope(location="berlin"), 60, "location", "scope.permissions"),
        (PLACE, 60, "operator", "scope"),
        (TokenScope(run_id="r"), 60, "operator", "scope.run_id"),
        (PLACE, 59, "location", "lifetime_seconds"),
        (PLACE, 366 * 86_400, "location", "lifetime_seconds"),
        (TokenScope(location="paris", permissions=("work",)), 60, "location", "scope.location"),
        (TokenScope(location="berlin", target="dev", permissions=("work",)), 60, "location", "scope.target"),
    ],
)
def test_wrong_request_names_its_field(
    access: AccessService, scope: TokenScope, seconds: int, kind: str, field: str
) -> None:
    with pytest.raises(TidemillError) as refusal:
        access.issue(kind, scope, seconds)  # type: ignore[arg-type]  # parametrized text
    assert isinstance(refusal.value, InvalidRequest | NotFound)
    assert [wrong.field for wrong in refusal.value.fields] == [field]
    assert access.list_tokens().items == []


def test_second_accept_ends_the_first_worker_token(access: AccessService, timed: Database, clock: HandClock) -> None:
    def mint(claim: str) -> str:
        return timed.write(
            lambda tx: access.mint_worker_token(
                tx,
                run_id="run_1",
                claim_id=claim,
                location="berlin",
                target="prod",
                expires_at=tx.now + timedelta(hours=2),
            )
        )

    first, other = mint("clm_1"), mint("clm_2")
    assert access.authenticate(first).scope == TokenScope(
        location="berlin", target="prod", run_id="run_1", claim_id="clm_1"
    )
    second = mint("clm_1")
    with pytest.raises(TokenRevoked):
        access.authenticate(first)
    assert access.authenticate(second).kind == "worker"
    assert access.authenticate(other).scope.claim_id == "clm_2"
    clock.advance(7_200)
    with pytest.raises(TokenExpired):
        access.authenticate(second)


def test_worker_token_of_a_transaction_that_fails_does_not_exist(access: AccessService, timed: Database) -> None:
    minted: list[str] = []

    def mint_and_fail(tx: Transaction) -> None:
        later = tx.now + timedelta(hours=1)
        minted.append(
            access.mint_worker_token(tx, run_id="r", claim_id="c", location="berlin", target="prod", expires_at=later)
        )
        raise RuntimeError

    with pytest.raises(RuntimeError):
        timed.write(mint_and_fail)
    with pytest.raises(NotAuthenticated):
        access.authenticate(minted[0])


def test_worker_token_must_expire_in_time(access: AccessService, timed: Database) -> None:
    with pytest.raises(ValueError, match="within a year"), timed.transaction() as tx:
        access.mint_worker_token(tx, run_id="r", claim_id="c", location="l", target="t", expires_at=tx.now)


def test_list_pages_newest_first_without_worker_tokens(
    access: AccessService, timed: Database, clock: HandClock
) -> None:
    issued = []
    for _ in range(5):
        clock.advance(1)
        issued.append(access.issue("location", PLACE, 3_600).token_id)
    timed.write(
        lambda tx: access.mint_worker_token(
            tx, run_id="r", claim_id="c", location="berlin", target="prod", expires_at=tx.now + timedelta(hours=1)
        )
    )
    seen, cursor = [], None
    while True:
        page = access.list_tokens(limit=2, cursor=cursor)
        seen += [item.token_id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == issued[::-1]
