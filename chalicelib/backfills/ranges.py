"""From what was asked to a checked range: which schedule or partitions, from when to when. Pure.

Every refusal names its field, and says what would be accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time
from itertools import islice

from ..authoring.policies import Input
from ..cron import next_after, previous_at, validate
from ..cron.zones import zone
from ..kernel.clock import instant_text, parse_instant
from ..kernel.errors import FieldError, InvalidRequest
from ..kernel.limits import BACKFILL_ITEMS_COUNTED, BACKFILL_ITEMS_MAX
from ..projects.bundle import JobDefinition, TriggerDefinition
from .model import Range, RangeRequest, Step
from .plan import items_after

# Where a partition of each step begins. A week begins on Monday.
STEP_CRON: Mapping[Step, str] = {
    "hour": "0 * * * *",
    "day": "0 0 * * *",
    "week": "0 0 * * 1",
    "month": "0 0 1 * *",
    "year": "0 0 1 1 *",
}
_STARTS, _ENDS = ("cursor:start", "option:start"), ("cursor:end", "option:end")
_ONLY_PARTITIONS = ("step", "start_input", "end_input", "timezone")


def checked_range(request: RangeRequest, definition: JobDefinition, now: datetime) -> Range:
    """The range that was asked for. Raises ``InvalidRequest`` or ``InvalidSchedule`` naming the field."""
    occurrences = request.over == "occurrences"
    asked = _occurrences(request, definition) if occurrences else _partitions(request, definition, now)
    if asked.first >= asked.until:
        raise InvalidRequest.of_field("to", "must be later than from; from belongs to the range, to does not")
    if asked.over == "occurrences":
        _check_past(asked, now)
    else:
        _check_aligned("from", asked, asked.first)
        _check_aligned("to", asked, asked.until)
    return replace(asked, items=_counted(asked))


def _occurrences(request: RangeRequest, definition: JobDefinition) -> Range:
    wrong = [name for name in _ONLY_PARTITIONS if getattr(request, name) is not None]
    if wrong:
        raise InvalidRequest.of_field(wrong[0], "belongs to over=partitions; leave it out")
    trigger = _schedule(request, definition)
    cron, timezone = str(trigger.spec["cron"]), str(trigger.spec["timezone"])
    first, until = (_moment(name, text, timezone) for name, text in (("from", request.from_), ("to", request.to)))
    return Range("occurrences", cron, timezone, first, until, schedule=trigger.name)


def _schedule(request: RangeRequest, definition: JobDefinition) -> TriggerDefinition:
    schedules = {trigger.name: trigger for trigger in definition.triggers if trigger.kind == "schedule"}
    if not schedules:
        raise InvalidRequest.of_field("over", f"{definition.job} has no schedule; use partitions")
    names = ", ".join(sorted(schedules))
    if request.schedule is None and len(schedules) > 1:
        raise InvalidRequest.of_field("schedule", f"{definition.job} has several; name one of: {names}")
    name = request.schedule or next(iter(schedules))
    if name not in schedules:
        raise InvalidRequest.of_field("schedule", f"{definition.job} has no schedule {name!r}; it has: {names}")
    return schedules[name]


def _partitions(request: RangeRequest, definition: JobDefinition, now: datetime) -> Range:
    if request.schedule is not None:
        raise InvalidRequest.of_field("schedule", "belongs to over=occurrences; leave it out")
    if request.step is None:
        raise InvalidRequest.of_field("step", f"say how long a partition is: {', '.join(STEP_CRON)}")
    start = _named_input("start_input", request.start_input, definition, _STARTS)
    if start is None:
        raise InvalidRequest.of_field(
            "start_input", "name the input of type date or datetime that takes the start of a partition"
        )
    end = _named_input("end_input", request.end_input, definition, _ENDS, other=start)
    for field, name in (("start_input", start), ("end_input", end)):
        if name is not None:
            _check_free(field, name, request, definition)
    dates = definition.inputs[start].type == "date"
    if dates and request.timezone not in {None, "UTC"}:
        raise InvalidRequest.of_field("timezone", f"a date has none, and {start} is a date; leave it out")
    timezone = request.timezone or "UTC"
    cron = STEP_CRON[request.step]
    validate(cron, timezone, after=now)
    read = _date if dates else _moment
    first, until = (read(name, text, timezone) for name, text in (("from", request.from_), ("to", request.to)))
    return Range(
        "partitions", cron, timezone, first, until, step=request.step, start_input=start, end_input=end, dates=dates
    )


def _named_input(
    field: str, given: str | None, definition: JobDefinition, mappings: tuple[str, ...], *, other: str | None = None
) -> str | None:
    """The input that was named, else the one that is mapped to this end of a range, else the only one for the start."""
    fitting = {
        name: one for name, one in definition.inputs.items() if one.type in {"date", "datetime"} and name != other
    }
    if given is not None:
        if given in fitting:
            return given
        raise InvalidRequest.of_field(
            field, f"{given!r} is no input of type date or datetime to be set here; {_choice(fitting)}"
        )
    mapped = [name for name, one in fitting.items() if one.maps_to in mappings]
    if mapped:
        return mapped[0] if len(mapped) == 1 else _ambiguous(field, mapped)
    if other is not None:
        return None
    free = [name for name, one in fitting.items() if one.maps_to not in _ENDS]
    if len(free) > 1:
        return _ambiguous(field, free)
    return free[0] if free else None


def _choice(fitting: Mapping[str, Input]) -> str:
    return f"there are: {', '.join(sorted(fitting))}" if fitting else "the job has none"


def _ambiguous(field: str, names: list[str]) -> str:
    raise InvalidRequest.of_field(field, f"several inputs would fit; name one of: {', '.join(sorted(names))}")


def _check_free(field: str, name: str, request: RangeRequest, definition: JobDefinition) -> None:
    if name in request.inputs:
        raise InvalidRequest.of_field(
            f"inputs.{name}", f"the partitions give this value; leave it out, or choose another {field}"
        )
    if request.step == "hour" and definition.inputs[name].type == "date":
        raise InvalidRequest.of_field("step", f"{name} is a date; use day, week, month or year")


def _moment(field: str, text: str, timezone: str) -> datetime:
    """An instant, or a date that stands for its midnight in the zone."""
    try:
        if len(text) == len("2026-01-31"):
            return datetime.combine(date.fromisoformat(text), time(), tzinfo=zone(timezone)).astimezone(UTC)
        return parse_instant(text)
    except (ValueError, OverflowError):
        raise InvalidRequest.of_field(
            field, f"{text!r} is neither a date nor an instant; write 2026-01-31 or 2026-01-31T06:15:00Z"
        ) from None


def _date(field: str, text: str, timezone: str) -> datetime:
    try:
        return datetime.combine(date.fromisoformat(text), time(), tzinfo=zone(timezone)).astimezone(UTC)
    except ValueError:
        raise InvalidRequest.of_field(field, f"{text!r} is no date; write it as 2026-01-31") from None


def _check_past(asked: Range, now: datetime) -> None:
    if asked.until > now:
        raise InvalidRequest.of_field(
            "to", f"lies ahead; the schedule makes those runs itself. Use at most {instant_text(now)}"
        )


def _check_aligned(field: str, asked: Range, moment: datetime) -> None:
    before = previous_at(asked.cron, asked.timezone, moment)
    if before == moment:
        return
    after = next_after(asked.cron, asked.timezone, moment)
    near = " or ".join(_shown(asked, one) for one in (before, after) if one is not None)
    raise InvalidRequest.of_field(field, f"is no start of a {asked.step}; use {near}")


def _shown(asked: Range, moment: datetime) -> str:
    return moment.date().isoformat() if asked.dates else moment.astimezone(zone(asked.timezone)).isoformat()


def _counted(asked: Range) -> int:
    """How many items; refused are none, and more than 1,000."""
    count = sum(1 for _ in islice(items_after(asked, None), BACKFILL_ITEMS_COUNTED + 1))
    if count == 0:
        raise InvalidRequest.of_field("to", "no occurrence lies between from and to; see `tidemill triggers preview`")
    if count > BACKFILL_ITEMS_MAX:
        found = f"more than {BACKFILL_ITEMS_COUNTED:,}" if count > BACKFILL_ITEMS_COUNTED else f"{count:,}"
        message = f"{found} items lie between from and to; at most {BACKFILL_ITEMS_MAX:,} fit in one backfill, so use a shorter range"
        raise InvalidRequest(
            f"to: {message}", fields=[FieldError("to", InvalidRequest.code, message)], facts={"items": count}
        )
    return count
