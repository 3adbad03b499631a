"""Locations and their targets: where jobs run, and which warehouse their relations live in.

Invariants: a target's ``warehouse`` and ``single_writer`` do not change while it has live write claims, because
``*`` and a named relation do not conflict; all targets of one warehouse agree on ``single_writer`` and ``case_rule``
(scheduler.md 7.3). Start reading at ``plan.py``.
"""

from .model import LocationView as LocationView
from .model import TargetSettings as TargetSettings
from .model import TargetView as TargetView
from .service import LocationService as LocationService
