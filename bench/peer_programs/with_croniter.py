"""croniter, by one iterator per schedule."""

from datetime import datetime
from zoneinfo import ZoneInfo

from croniter import croniter
from stopwatch import answer


def begin(cron, zone, first):
    iterator = croniter(cron, first.astimezone(ZoneInfo(zone)), ret_type=datetime)
    return iterator.get_next


answer(begin)
