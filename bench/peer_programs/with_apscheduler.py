"""APScheduler, by the trigger that its scheduler asks for the next fire time."""

from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger
from stopwatch import answer

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat", "sun")


def begin(cron, zone, first):
    minute, hour, day, month, weekday = cron.split()
    # Its own reading of a crontab counts weekdays from Monday, so they are named.
    named = "".join(DAYS[int(part)] if part.isdigit() else part for part in weekday)
    trigger = CronTrigger(minute=minute, hour=hour, day=day, month=month, day_of_week=named, timezone=ZoneInfo(zone))
    state = [first.astimezone(ZoneInfo(zone))]

    def step():
        state[0] = trigger.get_next_fire_time(state[0], state[0])
        return state[0]

    return step


answer(begin)
