"""What a scheduled run is pinned to: inputs made from its occurrence. Pure."""

from __future__ import annotations

from datetime import datetime

from pydantic import JsonValue

from ..cron.zones import zone
from ..projects.bundle import JobDefinition
from ..projects.inputs import resolve_inputs
from .model import ScheduleSpec
from .plan import previous_due_at


def occurrence_inputs(definition: JobDefinition, spec: ScheduleSpec, scheduled_for: datetime) -> dict[str, JsonValue]:
    """The inputs of the run for one occurrence. Raises ``InvalidInputs`` when a required one has no value.

    A date made from an occurrence is the date in the schedule's own zone.
    """
    local = zone(spec.timezone)
    before = previous_due_at(spec, scheduled_for)
    return resolve_inputs(definition, {}, scheduled_for.astimezone(local), before and before.astimezone(local))
