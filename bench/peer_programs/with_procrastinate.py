"""procrastinate: defer no-op jobs, then fetch and finish them by its own worker, or fetch them only.

Its worker fetches one job after the other and runs and finishes them at once; it ends when none is left. Who fetches
only calls what the worker calls, in several tasks.
"""

import asyncio
import json
import logging
import sys
import time

import procrastinate
import uvloop

logging.disable(logging.CRITICAL)
settings = json.load(sys.stdin)
connector = procrastinate.PsycopgConnector(conninfo=settings["url"], min_size=1, max_size=settings["concurrency"] + 2)
app = procrastinate.App(connector=connector)


LEFT = {
    "fetch": "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status = 'todo'",
    "finish": "SELECT count(*) AS jobs FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
}


@app.task(name="no_op", queue="bench")
async def no_op(place):
    return place


async def defer():
    for first in range(0, settings["jobs"], settings["batch"]):
        last = min(first + settings["batch"], settings["jobs"])
        await no_op.batch_defer_async(*({"place": place} for place in range(first, last)))


async def finish():
    await app.run_worker_async(
        queues=["bench"],
        concurrency=settings["concurrency"],
        wait=False,
        listen_notify=False,
        delete_jobs=settings["delete_jobs"],
        install_signal_handlers=False,
    )


async def fetch():
    worker_id = await app.job_manager.register_worker()

    async def until_empty():
        while await app.job_manager.fetch_job(queues=["bench"], worker_id=worker_id) is not None:
            pass

    await asyncio.gather(*(until_empty() for _ in range(settings["fetchers"])))


async def timed(work):
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def main():
    async with app.open_async():
        deferred = await timed(defer)
        await connector.execute_query_async("ANALYZE")
        worked = await timed({"fetch": fetch, "finish": finish}[settings["do"]])
        left = await connector.execute_query_one_async(LEFT[settings["do"]])
        return {"queue_seconds": deferred, "work_seconds": worked, "left": left["jobs"]}


async def install():
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


answer = uvloop.run(install() if settings["do"] == "install" else main())
sys.stdout.write(json.dumps(answer) + "\n")
