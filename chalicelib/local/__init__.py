"""The whole of Tidemill on one machine: ``tidemill dev``.

Embedded Postgres, a moto server in place of AWS, the API on localhost, and an event pump in place of EventBridge
and of SQS event sources. Everything in between is the code that AWS runs; nothing is implemented twice here.

Invariants: one process per data folder, held by a lock; nothing listens beyond loopback; whatever was started is
stopped, in reverse order, also when a start fails half-way; no run is lost by a kill of any part. Start reading at
``stack.py`` (the order of things), then ``pump.py``. The launcher of Postgres is ``postgres.py``.
"""
