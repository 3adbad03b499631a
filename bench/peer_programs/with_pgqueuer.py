"""pgqueuer: enqueue no-op jobs, then dequeue and finish them by its own queue manager, which drains the queue.

It dequeues a batch in one statement and writes the ends of a batch in one statement.
"""

import json
import logging
import sys
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

logging.disable(logging.CRITICAL)
settings = json.load(sys.stdin)


async def install():
    connection = await asyncpg.connect(settings["url"])
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def main():
    connection = await asyncpg.connect(settings["url"])
    queries = Queries(AsyncpgDriver(connection))
    manager = QueueManager(queries)

    @manager.entrypoint("no_op")
    async def no_op(job):
        return job.id

    began = time.perf_counter()
    for first in range(0, settings["jobs"], settings["batch"]):
        size = min(settings["batch"], settings["jobs"] - first)
        await queries.enqueue(["no_op"] * size, [None] * size, [0] * size)
    queued = time.perf_counter() - began
    await connection.execute("ANALYZE")
    began = time.perf_counter()
    await manager.run(
        dequeue_timeout=timedelta(seconds=1), batch_size=settings["batch_size"], mode=QueueExecutionMode.drain
    )
    worked = time.perf_counter() - began
    connection = await asyncpg.connect(settings["url"])
    left = await connection.fetchval("SELECT count(*) FROM pgqueuer")
    await connection.close()
    return {"queue_seconds": queued, "work_seconds": worked, "left": left}


answer = uvloop.run(install() if settings["do"] == "install" else main())
sys.stdout.write(json.dumps(answer) + "\n")
