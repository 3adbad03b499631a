"""One runner per tool: the command line and environment of scheduler.md 8.3, and how to read what the tool leaves.

A runner is told everything by a ``RunPlan`` and holds no state, so that a run can be explained from its plan. Start at
``plan.py``.
"""
