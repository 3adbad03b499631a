"""The jobs of the coffee shop, built by SQLBuild."""

from tidemill import Job, Schedule, SqlBuild

coffee = Job(
    key="coffee",
    description="Everything: beans, sales, and what was earned per day and per bean",
    build=SqlBuild(),
    # Every minute, so that you see it run soon after the start. A real shop would say "15 6 * * *".
    schedule=Schedule(cron="* * * * *", timezone="Europe/Berlin"),
    timeout=300,
)

staging = Job(
    key="staging",
    description="The staging models alone, on request",
    build=SqlBuild(select=["tag:staging"]),
    timeout=300,
)
