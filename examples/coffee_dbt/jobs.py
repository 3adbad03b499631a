"""The jobs of the coffee shop, built by dbt."""

from tidemill import Command, Dbt, Input, Job, Schedule

coffee = Job(
    key="coffee",
    description="Everything: beans, sales, and what was earned per day and per bean",
    build=Dbt(),
    # Every minute, so that you see it run soon after the start. A real shop would say "15 6 * * *".
    schedule=Schedule(cron="* * * * *", timezone="UTC"),
    timeout=300,
)

export = Job(
    key="export",
    description="Write daily_sales to a CSV file beside the database",
    build=Command(argv=["python", "export.py"]),
    # The table that the script keeps its log in; on this single-writer target any run claims the whole file anyway.
    writes=["coffee.main.export_log"],
    # Holds the file for that long, to show that a second run waits for the first.
    inputs={"pause_seconds": Input(type="integer", default=0, maps_to="env")},
    timeout=300,
)
