"""Cron expressions in a time zone: what is accepted, when it is due, and a preview. Pure.

The dialect is Debian cron's (scheduler.md 5.1); the library ``cronsim`` parses an expression and
decides about days, and ``occurrences.py`` places the wall times that it gives on the time line.
Invariants: ``next_after(t) > t``, ``previous_at(t) <= t``, both walk one and the same series, and
the answer depends on nothing but the expression, the zone, the instant and the ``tzdata`` package
(neither on the machine's zone files nor on its ``TZ``).

``next_after``, ``previous_at`` and ``occurrences_between`` serve the scheduler; everyone else uses
``validate``, ``preview`` and ``occurrence_at``. Start reading at ``occurrences.py``.
"""

from .expression import MACROS as MACROS
from .expression import is_fixed as is_fixed
from .occurrences import next_after as next_after
from .occurrences import occurrences_between as occurrences_between
from .occurrences import previous_at as previous_at
from .preview import Preview as Preview
from .preview import PreviewedOccurrence as PreviewedOccurrence
from .preview import occurrence_at as occurrence_at
from .preview import preview as preview
from .validation import ValidatedSchedule as ValidatedSchedule
from .validation import validate as validate
from .zones import local_slot as local_slot
from .zones import tzdata_version as tzdata_version
