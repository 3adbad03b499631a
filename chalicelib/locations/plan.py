"""Whether new settings of a target may be stored. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..kernel import limits
from ..kernel.errors import HasLiveClaims, InvalidRequest
from .model import TargetSettings, TargetView


def applied(location: str, target: str, settings: TargetSettings) -> TargetView:
    """The settings with their defaults filled in."""
    settle = limits.SETTLE_SINGLE_WRITER_SECONDS if settings.single_writer else limits.SETTLE_DEFAULT_SECONDS
    return TargetView(
        location=location,
        target=target,
        warehouse=settings.warehouse or f"{location}/{target}",
        settle_seconds=settle if settings.settle_seconds is None else settings.settle_seconds,
        single_writer=settings.single_writer,
        case_rule=settings.case_rule,
        environment=settings.environment,
    )


def check_change(before: TargetView | None, after: TargetView, *, live_claims: bool) -> None:
    """Refuse to move a target between sets of write claims that do not see each other while it holds some."""
    if before is None or not live_claims:
        return
    for field in ("warehouse", "single_writer"):
        if getattr(before, field) != getattr(after, field):
            raise HasLiveClaims.of_field(
                field,
                f"runs of {after.location}/{after.target} hold write claims; disable the location, wait until its runs "
                "have ended and settled, then change it",
            )


def check_agreement(after: TargetView, others: Sequence[TargetView]) -> None:
    """Refuse settings by which two targets of one warehouse would name the same relation differently."""
    for other in others:
        for field in ("single_writer", "case_rule"):
            ours, theirs = getattr(after, field), getattr(other, field)
            if ours != theirs:
                raise InvalidRequest.of_field(
                    field,
                    f"{other.location}/{other.target} has {theirs!r} on the same warehouse {after.warehouse!r}; "
                    "use the same value, or another warehouse",
                )
