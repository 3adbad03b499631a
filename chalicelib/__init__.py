"""Tidemill runs SQL builds on time, in your own AWS account.

The names below are what a project's jobs file imports. They are loaded on first use (PEP 562), so that importing a
part of the package, as a Lambda does, does not load the records. Start reading at ``authoring/jobs.py``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .kernel.release import RELEASE as _RELEASE

if TYPE_CHECKING:
    from .authoring.builds import Command, Dbt, SqlBuild
    from .authoring.jobs import Job
    from .authoring.policies import Input, Pool, Retry, Writes
    from .authoring.triggers import PlatformSensor, RunSensor, Schedule, SensorResult, SourceSensor, sensor

__all__ = [
    "Command",
    "Dbt",
    "Input",
    "Job",
    "PlatformSensor",
    "Pool",
    "Retry",
    "RunSensor",
    "Schedule",
    "SensorResult",
    "SourceSensor",
    "SqlBuild",
    "Writes",
    "__version__",
    "sensor",
]

__version__ = _RELEASE
_HOME = {
    "Command": "builds",
    "Dbt": "builds",
    "Input": "policies",
    "Job": "jobs",
    "PlatformSensor": "triggers",
    "Pool": "policies",
    "Retry": "policies",
    "RunSensor": "triggers",
    "Schedule": "triggers",
    "SensorResult": "triggers",
    "SourceSensor": "triggers",
    "SqlBuild": "builds",
    "Writes": "policies",
    "sensor": "triggers",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module(f".authoring.{_HOME[name]}", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
