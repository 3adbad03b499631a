"""The worker: takes a claimed run and carries it to its end.

Invariants (scheduler.md 3.6): work starts only after this boot verified inputs and snapshot (S39); a failed call never
stops work, a cancel signal or a revocation always does (S40); no child outlives its worker (S42).

Start reading at ``loop.py`` (a container worker) and ``invocation.py`` (a Lambda), which share ``boot.py``; then
``execution.py`` (one run from accept to its terminal report), ``process.py`` with ``keeper.py`` (owning a process),
``outcome.py`` (what an end means), ``guardian.py`` and ``supervisor.py`` (what stands above a worker).
"""
