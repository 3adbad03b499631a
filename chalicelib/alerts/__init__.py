"""What the platform tells people without being asked: runs that never started, wait, are lost or overdue, and so on.

Invariants: an alert's key is its condition, its subject and an episode, never the moment at which somebody looked; a
condition that lasts is one row, however often it is seen (S24, held by the index ``platform_alerts_one_open``); it closes
when the condition ends. Only a fenced pass writes alerts. Start reading at ``keeping.py``; what is looked for stands with
the scheduler, in ``scheduler/scanning.py``.
"""

from .keeping import close_alerts, open_alerts
from .model import AlertFact, Condition

__all__ = ["AlertFact", "Condition", "close_alerts", "open_alerts"]
