"""Schedules of a job: cursors, edits and the decision whether a tick is due (scheduler.md 5.3, 5.4).

Invariants: one evaluation gives at most one tick, for the latest due occurrence after the cursor;
earlier ones are counted, not expanded (S14). However late, the latest one is ticked (S16). An edit
acts on what follows the edit; an identical save changes nothing (S18). Manual runs, reruns, retries
and backfills have no way to move a cursor (S21). Start reading at ``plan.py``.
``playback.py`` plays schedules over a period for people who want to see what they will do.
"""
