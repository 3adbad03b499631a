"""Common cron expressions over zones, which every peer reads as we do."""

EXPRESSIONS: tuple[tuple[str, str], ...] = (
    ("* * * * *", "UTC"),
    ("*/5 * * * *", "UTC"),
    ("*/15 * * * *", "Europe/Berlin"),
    ("7,37 * * * *", "America/New_York"),
    ("0 * * * *", "UTC"),
    ("0 */2 * * *", "Asia/Tokyo"),
    ("30 */6 * * *", "Europe/London"),
    ("0 8-18 * * 1-5", "Europe/Berlin"),
    ("*/10 9-17 * * 1-5", "America/Chicago"),
    ("0 0 * * *", "UTC"),
    ("15 6 * * *", "Europe/Berlin"),
    ("0 6 * * 1-5", "America/New_York"),
    ("45 5 * * 6,0", "Australia/Sydney"),
    ("30 2 * * *", "Asia/Kolkata"),
    ("0 7 * * 1", "America/Los_Angeles"),
    ("0 9 1 * *", "Europe/Paris"),
    ("0 4 15 * *", "America/Sao_Paulo"),
    ("0 0 1 1,4,7,10 *", "UTC"),
    ("0 12 25 12 *", "Europe/Madrid"),
    ("0 5 1-7 * *", "Asia/Singapore"),
)
