"""Write the daily sales to ``daily_sales.csv`` and note it in ``export_log``."""

import os
import time

import duckdb

DATABASE = "coffee.duckdb"
FILE = "daily_sales.csv"


def main() -> None:
    """Export, note it, and hold the database for PAUSE_SECONDS."""
    with duckdb.connect(DATABASE) as connection:
        connection.table("daily_sales").order("sold_on").write_csv(FILE)
        connection.execute("CREATE TABLE IF NOT EXISTS export_log (run_id TEXT, exported_at TIMESTAMPTZ DEFAULT now())")
        connection.execute("INSERT INTO export_log (run_id) VALUES (?)", [os.environ.get("TIDEMILL_RUN_ID", "by hand")])
        print(f"wrote {FILE}", flush=True)
        time.sleep(int(os.environ.get("PAUSE_SECONDS", "0")))


if __name__ == "__main__":
    main()
