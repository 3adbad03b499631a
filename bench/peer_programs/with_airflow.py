"""Airflow, by the timetable that its scheduler asks for the next run."""

import pendulum
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.timetables.trigger import CronTriggerTimetable
from stopwatch import answer


def begin(cron, zone, first):
    timetable = CronTriggerTimetable(cron, timezone=zone)
    restriction = TimeRestriction(earliest=None, latest=None, catchup=True)
    state = [DataInterval.exact(pendulum.instance(first))]

    def step():
        info = timetable.next_dagrun_info(last_automated_data_interval=state[0], restriction=restriction)
        state[0] = info.data_interval
        return info.run_after

    return step


answer(begin)
