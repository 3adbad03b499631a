"""Dagster, by the iterator that its scheduler daemon walks."""

from dagster._utils.schedules import cron_string_iterator
from stopwatch import answer


def begin(cron, zone, first):
    return cron_string_iterator(first.timestamp(), cron, zone).__next__


answer(begin)
