-- Makes every statement of the product fail that writes one of the watched tables without the fence's (7422) or the hint's (7423) lock.
CREATE FUNCTION watch_the_door() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('application_name') = 'tidemill' AND NOT EXISTS (
        SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND classid IN (7422, 7423)
    ) THEN
        RAISE EXCEPTION 'write to % past the door', TG_TABLE_NAME;
    END IF;
    RETURN NULL;
END
$$;
