"""Records of backfills: what is asked, what is stored of a range, what is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field

from ..kernel import limits
from ..kernel.clock import instant_text, parse_instant
from ..kernel.records import CLIENT_ID_PATTERN, KEY_PATTERN, Instant, Record
from ..runs.states import RunState
from .states import BackfillState

Over = Literal["occurrences", "partitions"]
Step = Literal["hour", "day", "week", "month", "year"]

ClientId = Annotated[str, Field(pattern=CLIENT_ID_PATTERN)]
Key = Annotated[str, Field(pattern=KEY_PATTERN)]
Bound = Annotated[str, Field(min_length=1, max_length=64)]
Name = Annotated[str, Field(min_length=1, max_length=300)]


class RangeRequest(Record):
    """Which items of which job: the occurrences of one of its schedules, or partitions for one of its inputs.

    ``from`` belongs to the range, ``to`` does not. Each is a date, or an instant with its zone.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    location: Key
    target: Key
    job: Key
    over: Over
    from_: Bound = Field(alias="from")
    to: Bound
    schedule: Name | None = None
    step: Step | None = None
    start_input: Name | None = None
    end_input: Name | None = None
    timezone: Annotated[str, Field(max_length=100)] | None = None
    inputs: dict[str, Any] = Field(default_factory=dict)


class BackfillRequest(RangeRequest):
    """``POST /backfills``: the id is the client's, so that a repeat is safe."""

    backfill_id: ClientId
    max_parallel: Annotated[int, Field(ge=1, le=limits.BACKFILL_PARALLEL_MAX)] = limits.BACKFILL_PARALLEL_DEFAULT


@dataclass(frozen=True, slots=True)
class Range:
    """A checked range: the items are the occurrences of ``cron`` from ``first`` on and before ``until``.

    Partitions are occurrences, too: each starts where its step begins in ``timezone``. ``dates`` says that items are
    named by their date; ``items`` is how many there are.
    """

    over: Over
    cron: str
    timezone: str
    first: datetime
    until: datetime
    schedule: str | None = None
    step: Step | None = None
    start_input: str | None = None
    end_input: str | None = None
    dates: bool = False
    items: int = 0

    def to_json(self) -> dict[str, Any]:
        """The object on the backfill's row."""
        return asdict(self) | {"first": instant_text(self.first), "until": instant_text(self.until)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote."""
        moments = {name: parse_instant(document[name]) for name in ("first", "until")}
        return cls(**{**document, **moments})


@dataclass(frozen=True, slots=True)
class Item:
    """One item by its name, which is its place in the order, and the instant that it means."""

    name: str
    at: datetime


class PlannedItem(Record):
    """An item and the inputs that its run would have; ``scheduled_for`` is missing for a partition."""

    item: str
    scheduled_for: Instant | None
    inputs: dict[str, Any]


class BackfillPlan(Record):
    """What a backfill would do: nothing was stored."""

    job: str
    snapshot_id: str
    schedule: str | None
    timezone: str
    items: list[PlannedItem]


class BackfillWait(Record):
    """Why the next item does not begin: on what it waits, and what would clear it.

    ``since`` is missing where the answer was made from what holds right now.
    """

    code: str
    subject: str
    detail: dict[str, Any]
    since: Instant | None
    clears_when: str


class BackfillView(Record):
    """A backfill. ``counts`` has the newest run of each item that began, by state; ``waiting`` items have none yet."""

    model_config = ConfigDict(serialize_by_alias=True)

    backfill_id: str
    location: str
    target: str
    job: str
    snapshot_id: str
    over: Over
    from_: Instant = Field(alias="from")
    to: Instant
    schedule: str | None
    step: Step | None
    start_input: str | None
    end_input: str | None
    timezone: str
    inputs: dict[str, Any]
    max_parallel: int
    state: BackfillState
    items: int
    waiting: int
    counts: dict[RunState, int]
    waits_for: list[BackfillWait]
    requested_by: str
    created_at: Instant
    finished_at: Instant | None


class ItemView(Record):
    """An item that began: its run, and the newest retry of that where there is one."""

    item: str
    first_run_id: str
    run_id: str | None
    state: RunState | None
    end_reason: str | None
    retry_number: int | None
