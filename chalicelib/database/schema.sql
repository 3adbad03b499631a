-- The control store. One file creates it; its checksum stands in store_meta. PostgreSQL 15 or later.
-- Rules: a rule that must hold is a constraint named for it; no default reads a clock; no column that no query reads.
-- Applied by a superuser or the database's owner; three roles come out of it:
--   tidemill_owner        owns every table, runs migrations
--   tidemill_application  what the API, the passes and the tests connect as
--   tidemill_retention    deletes what is past its keeping time

CREATE TABLE store_meta (
    key   text PRIMARY KEY,
    value text NOT NULL
);

-- --------------------------------------------------------------- locations and access

CREATE TABLE locations (
    location text PRIMARY KEY CHECK (location ~ '^[a-z0-9_-]{1,100}$'),
    disabled boolean NOT NULL
);

CREATE TABLE targets (
    location               text NOT NULL CONSTRAINT targets_location_fkey REFERENCES locations,
    target                 text NOT NULL CHECK (target ~ '^[a-z0-9_-]{1,100}$'),
    warehouse              text NOT NULL,
    settle_seconds         integer NOT NULL CHECK (settle_seconds BETWEEN 0 AND 86400),
    single_writer          boolean NOT NULL,
    case_rule              text NOT NULL CHECK (case_rule IN ('lower', 'upper', 'preserve')),
    environment            jsonb NOT NULL,
    connection_fingerprint text,
    PRIMARY KEY (location, target)
);
CREATE INDEX targets_by_warehouse ON targets (warehouse);
CREATE INDEX targets_by_fingerprint ON targets (connection_fingerprint) WHERE connection_fingerprint IS NOT NULL;

CREATE TABLE access_tokens (
    token_id     text PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('operator', 'location', 'worker')),
    secret_hash  text NOT NULL UNIQUE,
    scope_json   jsonb NOT NULL,
    expires_at   timestamptz NOT NULL,
    revoked_at   timestamptz,
    last_used_at timestamptz
);
-- accepting again from one boot ends the token that the first accept gave
CREATE INDEX access_tokens_of_claim ON access_tokens ((scope_json ->> 'claim_id')) WHERE kind = 'worker';
CREATE INDEX access_tokens_by_end ON access_tokens (LEAST(expires_at, revoked_at));

-- --------------------------------------------------------------- catalog

CREATE TABLE snapshots (
    snapshot_id   text PRIMARY KEY,
    location      text NOT NULL,
    target        text NOT NULL,
    tool          text NOT NULL,
    tool_version  text NOT NULL,
    baseline_hash text NOT NULL,
    git_revision  text,
    git_dirty     boolean NOT NULL,
    git_authors   jsonb NOT NULL,
    created_at    timestamptz NOT NULL,
    published_by  text,
    -- when it was last seen to be current, or published once more; before that its own creation counts
    last_used_at  timestamptz
);
CREATE INDEX snapshots_by_last_use ON snapshots (COALESCE(last_used_at, created_at), snapshot_id);

CREATE TABLE snapshot_documents (
    snapshot_id text NOT NULL REFERENCES snapshots ON DELETE CASCADE,
    key         text NOT NULL,
    sha256      text NOT NULL,
    size        bigint NOT NULL,
    body        text,
    PRIMARY KEY (snapshot_id, key)
);
-- a document that an earlier snapshot brought is not sent again
CREATE INDEX snapshot_documents_by_hash ON snapshot_documents (sha256);

CREATE TABLE snapshot_nodes (
    snapshot_id text NOT NULL REFERENCES snapshots ON DELETE CASCADE,
    node        text NOT NULL,
    relation    text,
    drift_key   text NOT NULL,
    body        jsonb NOT NULL,
    PRIMARY KEY (snapshot_id, node)
);

-- Job definitions belong to the snapshot, because a queued run stays pinned to the one it was queued with.
CREATE TABLE snapshot_jobs (
    snapshot_id text NOT NULL REFERENCES snapshots ON DELETE CASCADE,
    job         text NOT NULL,
    definition  jsonb NOT NULL,
    PRIMARY KEY (snapshot_id, job)
);

CREATE TABLE current_snapshots (
    location    text NOT NULL,
    target      text NOT NULL,
    snapshot_id text NOT NULL REFERENCES snapshots,
    PRIMARY KEY (location, target),
    FOREIGN KEY (location, target) REFERENCES targets
);
CREATE INDEX current_snapshots_of_snapshot ON current_snapshots (snapshot_id);

-- One snapshot may be published to several targets; location and target of snapshots are where it was first.
CREATE TABLE publications (
    publication_id text PRIMARY KEY,
    location       text NOT NULL,
    target         text NOT NULL,
    snapshot_id    text NOT NULL,
    response       jsonb NOT NULL
);
CREATE INDEX publications_by_target ON publications (location, target, snapshot_id);
CREATE INDEX publications_by_snapshot ON publications (snapshot_id, location, target);

CREATE TABLE jobs (
    location    text NOT NULL,
    target      text NOT NULL,
    job         text NOT NULL,
    snapshot_id text NOT NULL,
    shard       integer NOT NULL,
    PRIMARY KEY (location, target, job),
    CONSTRAINT jobs_target_fkey FOREIGN KEY (location, target) REFERENCES targets,
    FOREIGN KEY (snapshot_id, job) REFERENCES snapshot_jobs
);
CREATE INDEX jobs_of_snapshot ON jobs (snapshot_id, job);

-- --------------------------------------------------------------- scheduler shards

-- The fence: a scheduler transaction commits only under the epoch that stands here. There is one row per shard, so the
-- number of rows is the number of shards. hint_seq moves with every raise of the shard's hint. passed_at is the moment of the
-- newest pass that came to its end: whether anybody schedules at all can be told without anybody scheduling.
CREATE TABLE scheduler_shards (
    shard          integer PRIMARY KEY CHECK (shard >= 0),
    epoch          bigint NOT NULL,
    owner_token    text NOT NULL,
    hint_seq       bigint NOT NULL,
    tzdata_version text NOT NULL,
    passed_at      timestamptz
);
INSERT INTO scheduler_shards VALUES (0, 0, '', 0, '', NULL);

-- Look-ahead messages that were made: without this key each due tick would look ahead again and they would multiply.
CREATE TABLE due_messages (
    shard      integer NOT NULL,
    due_second timestamptz NOT NULL,
    CONSTRAINT due_messages_one_per_second PRIMARY KEY (shard, due_second)
);

-- Work of shard 0 that is due by the day: when it was last asked for, and when it last came to its end.
CREATE TABLE maintenance (
    task        text PRIMARY KEY CHECK (task IN ('retention')),
    asked_at    timestamptz NOT NULL,
    finished_at timestamptz
);

-- --------------------------------------------------------------- triggers and ticks

CREATE TABLE triggers (
    trigger_id text PRIMARY KEY,
    location   text NOT NULL,
    target     text NOT NULL,
    name       text NOT NULL,
    job        text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('schedule', 'source', 'run', 'platform', 'user')),
    spec       jsonb NOT NULL,
    spec_hash  text NOT NULL,
    UNIQUE (location, target, name)
);
CREATE INDEX triggers_by_job ON triggers (location, target, job);

CREATE TABLE trigger_state (
    trigger_id  text PRIMARY KEY REFERENCES triggers ON DELETE CASCADE,
    shard       integer NOT NULL,
    enabled     boolean NOT NULL,
    cursor_json jsonb NOT NULL,
    next_at     timestamptz
);
CREATE INDEX trigger_state_due ON trigger_state (shard, next_at, trigger_id) WHERE enabled AND next_at IS NOT NULL;

-- Who asked for which change of a trigger: the same request id gets the same answer.
CREATE TABLE trigger_requests (
    trigger_id text NOT NULL,
    request_id text NOT NULL,
    digest     text NOT NULL,
    response   jsonb NOT NULL,
    PRIMARY KEY (trigger_id, request_id)
);

-- trigger_id has no foreign key: ticks outlive their trigger until retention removes them.
CREATE TABLE ticks (
    trigger_id       text NOT NULL,
    local_slot       text NOT NULL,
    scheduled_for    timestamptz NOT NULL,
    outcome          text NOT NULL CHECK (outcome IN ('requested', 'covered')),
    run_id           text CONSTRAINT ticks_one_tick_per_run UNIQUE,
    covered_by       text,
    recorded_at      timestamptz NOT NULL,
    lateness_seconds double precision NOT NULL,
    skipped          integer NOT NULL,
    PRIMARY KEY (trigger_id, local_slot, scheduled_for),
    CONSTRAINT ticks_one_tick_per_occurrence UNIQUE (trigger_id, scheduled_for),
    CONSTRAINT ticks_outcome_has_its_run CHECK ((outcome = 'requested') = (run_id IS NOT NULL) AND (outcome = 'covered') = (covered_by IS NOT NULL))
);
CREATE INDEX ticks_by_covering_run ON ticks (covered_by) WHERE covered_by IS NOT NULL;
CREATE INDEX ticks_by_age ON ticks (recorded_at);

-- --------------------------------------------------------------- runs

CREATE TABLE runs (
    run_id              text PRIMARY KEY,
    location            text NOT NULL,
    target              text NOT NULL,
    job                 text NOT NULL,
    shard               integer NOT NULL,
    snapshot_id         text NOT NULL REFERENCES snapshots,
    inputs_json         jsonb NOT NULL,
    selection           jsonb,
    origin              text NOT NULL CHECK (origin IN ('schedule', 'manual', 'rerun', 'retry', 'backfill')),
    trigger_id          text,
    scheduled_for       timestamptz,
    requested_by        text,
    request_json        jsonb,
    rerun_of            text,
    retry_of            text CONSTRAINT runs_one_retry_per_run UNIQUE,
    retry_number        integer NOT NULL DEFAULT 0,
    backfill_id         text,
    not_before          timestamptz,
    blocked             boolean NOT NULL DEFAULT false,
    status              text NOT NULL CHECK (status IN ('queued', 'claimed', 'running', 'succeeded', 'failed', 'cancelled', 'launch_failed')),
    end_reason          text,
    reported_outcome    text,
    warnings            integer NOT NULL DEFAULT 0,
    heartbeat_lost_at   timestamptz,
    cancel_requested_at timestamptz,
    cancel_requested_by text,
    cancel_id           text,
    cancel_response     jsonb,
    resolve_id          text,
    resolve_response    jsonb,
    created_at          timestamptz NOT NULL,
    claimed_at          timestamptz,
    started_at          timestamptz,
    finished_at         timestamptz,
    summary             jsonb,
    CONSTRAINT runs_retry_is_numbered CHECK ((retry_of IS NOT NULL) = (retry_number > 0)),
    CONSTRAINT runs_end_is_whole CHECK ((finished_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'cancelled', 'launch_failed')))
);
CREATE INDEX runs_queued_of_job ON runs (location, target, job, created_at, run_id) WHERE status = 'queued';
CREATE INDEX runs_queued_of_shard ON runs (shard, created_at, run_id) WHERE status = 'queued';
-- old runs that lack something hold younger ones back; a delayed run makes its shard look again
CREATE INDEX runs_blocked_of_target ON runs (location, target, created_at, run_id) WHERE status = 'queued' AND blocked;
CREATE INDEX runs_delayed_of_shard ON runs (shard, not_before) WHERE status = 'queued' AND not_before IS NOT NULL;
CREATE INDEX runs_active_of_job ON runs (location, target, job) WHERE status IN ('claimed', 'running');
CREATE INDEX runs_claimed_of_shard ON runs (shard) WHERE status = 'claimed';
CREATE INDEX runs_running_of_shard ON runs (shard, started_at) WHERE status = 'running';
CREATE INDEX runs_launch_failed_of_shard ON runs (shard, finished_at) WHERE status = 'launch_failed';
CREATE INDEX runs_cancelling_of_shard ON runs (shard) WHERE status IN ('claimed', 'running') AND cancel_requested_at IS NOT NULL;
CREATE INDEX runs_marked_lost ON runs (shard, heartbeat_lost_at) WHERE status IN ('claimed', 'running') AND heartbeat_lost_at IS NOT NULL;
CREATE INDEX runs_of_backfill ON runs (backfill_id, status) WHERE backfill_id IS NOT NULL;
CREATE INDEX runs_newest ON runs (created_at DESC, run_id DESC);
CREATE INDEX runs_newest_of_job ON runs (location, target, job, created_at DESC, run_id DESC);
CREATE INDEX runs_of_snapshot ON runs (snapshot_id);

CREATE TABLE run_blockers (
    run_id  text NOT NULL REFERENCES runs ON DELETE CASCADE,
    code    text NOT NULL,
    subject text NOT NULL,
    detail  jsonb NOT NULL,
    since   timestamptz NOT NULL,
    PRIMARY KEY (run_id, code, subject)
);
CREATE INDEX run_blockers_never_fit ON run_blockers (run_id) WHERE code = 'pool_never_fits';

CREATE TABLE run_nodes (
    run_id           text NOT NULL REFERENCES runs ON DELETE CASCADE,
    node             text NOT NULL,
    status           text NOT NULL,
    started_at       timestamptz,
    finished_at      timestamptz,
    duration_seconds double precision,
    error_code       text,
    message          text,
    PRIMARY KEY (run_id, node)
);

CREATE TABLE claims (
    claim_id         text PRIMARY KEY,
    run_id           text NOT NULL REFERENCES runs ON DELETE CASCADE,
    worker_kind      text NOT NULL CHECK (worker_kind IN ('lambda', 'container')),
    boot_id          text,
    boot_partition   integer,
    started_ref      text,
    accepted_at      timestamptz,
    process_ended_at timestamptz,
    ended_at         timestamptz
);
CREATE UNIQUE INDEX claims_one_live_per_run ON claims (run_id) WHERE ended_at IS NULL;
CREATE INDEX claims_of_run ON claims (run_id);
CREATE INDEX claims_live_of_boot ON claims (boot_id) WHERE ended_at IS NULL;
CREATE INDEX claims_live_of_partition ON claims (boot_partition) WHERE ended_at IS NULL AND boot_id IS NOT NULL;
CREATE INDEX claims_live_of_task ON claims (started_ref) WHERE ended_at IS NULL AND started_ref IS NOT NULL;

CREATE TABLE outbox (
    claim_id text PRIMARY KEY REFERENCES claims ON DELETE CASCADE,
    queue    text NOT NULL,
    queued_at timestamptz NOT NULL,
    sent_at  timestamptz
);
CREATE INDEX outbox_unsent ON outbox (queued_at) WHERE sent_at IS NULL;

CREATE TABLE run_events (
    event_id    text PRIMARY KEY,
    seq         bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    run_id      text NOT NULL REFERENCES runs ON DELETE CASCADE,
    kind        text NOT NULL,
    occurred_at timestamptz NOT NULL,
    payload     jsonb NOT NULL
);
CREATE INDEX run_events_of_run ON run_events (run_id, seq);

CREATE TABLE run_reports (
    claim_id   text NOT NULL REFERENCES claims ON DELETE CASCADE,
    report_key text NOT NULL,
    digest     text NOT NULL,
    response   jsonb NOT NULL,
    PRIMARY KEY (claim_id, report_key)
);

-- --------------------------------------------------------------- what a run holds

CREATE TABLE pools (
    pool       text PRIMARY KEY,
    slot_limit integer NOT NULL CHECK (slot_limit >= 0)
);
INSERT INTO pools VALUES ('default', 10);

CREATE TABLE slots (
    pool   text NOT NULL REFERENCES pools,
    run_id text NOT NULL REFERENCES runs,
    weight integer NOT NULL CHECK (weight >= 1),
    PRIMARY KEY (pool, run_id)
);
CREATE INDEX slots_of_run ON slots (run_id);

CREATE TABLE write_claims (
    warehouse     text NOT NULL,
    relation      text NOT NULL,
    run_id        text NOT NULL REFERENCES runs,
    release_after timestamptz,
    CONSTRAINT write_claims_one_writer PRIMARY KEY (warehouse, relation)
);
CREATE INDEX write_claims_of_run ON write_claims (run_id);
CREATE INDEX write_claims_settling ON write_claims (release_after) WHERE release_after IS NOT NULL;

-- --------------------------------------------------------------- what recovery saw, and what people are told

-- When a boot was found silent, and when it was heard again; shown with its runs.
CREATE TABLE heartbeat_observations (
    boot_id     text NOT NULL,
    observed_at timestamptz NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('lost', 'recovered')),
    counter     bigint,
    PRIMARY KEY (boot_id, observed_at, kind)
);
CREATE INDEX heartbeat_observations_by_age ON heartbeat_observations (observed_at);

-- A lasting condition is one row, however long it lasts; one that comes back under the same subject is a new episode.
CREATE TABLE platform_alerts (
    condition     text NOT NULL,
    subject       text NOT NULL,
    episode       text NOT NULL,
    detail        jsonb NOT NULL,
    first_seen_at timestamptz NOT NULL,
    closed_at     timestamptz,
    CONSTRAINT platform_alerts_one_per_episode PRIMARY KEY (condition, subject, episode)
);
CREATE UNIQUE INDEX platform_alerts_one_open ON platform_alerts (condition, subject) WHERE closed_at IS NULL;
CREATE INDEX platform_alerts_newest ON platform_alerts (first_seen_at DESC, condition, subject, episode);
CREATE INDEX platform_alerts_closed ON platform_alerts (closed_at) WHERE closed_at IS NOT NULL;

-- --------------------------------------------------------------- backfills

CREATE TABLE backfills (
    backfill_id   text PRIMARY KEY,
    location      text NOT NULL,
    target        text NOT NULL,
    job           text NOT NULL,
    shard         integer NOT NULL,
    snapshot_id   text NOT NULL REFERENCES snapshots,
    over          text NOT NULL CHECK (over IN ('occurrences', 'partitions')),
    range_json    jsonb NOT NULL,
    inputs_json   jsonb NOT NULL,
    max_parallel  integer NOT NULL CHECK (max_parallel >= 1),
    state         text NOT NULL CHECK (state IN ('active', 'paused', 'cancelling', 'completed', 'cancelled')),
    cursor        text,
    waits_json    jsonb NOT NULL DEFAULT '[]',
    requested_by  text NOT NULL,
    request_json  jsonb NOT NULL,
    created_at    timestamptz NOT NULL,
    finished_at   timestamptz,
    CONSTRAINT backfills_end_is_whole CHECK ((finished_at IS NOT NULL) = (state IN ('completed', 'cancelled')))
);
CREATE INDEX backfills_open_of_shard ON backfills (shard, created_at, backfill_id) WHERE finished_at IS NULL;
CREATE INDEX backfills_newest ON backfills (created_at DESC, backfill_id DESC);
CREATE INDEX backfills_of_snapshot ON backfills (snapshot_id);

CREATE TABLE backfill_items (
    backfill_id text NOT NULL REFERENCES backfills ON DELETE CASCADE,
    item        text NOT NULL,
    run_id      text NOT NULL,
    CONSTRAINT backfill_items_one_run_per_item PRIMARY KEY (backfill_id, item)
);
