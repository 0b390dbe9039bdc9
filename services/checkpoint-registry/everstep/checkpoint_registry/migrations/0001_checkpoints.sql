-- Checkpoints, for restores, retention and people; what is true is in the events.
create table checkpoints (
    job_id          text        not null,
    step            bigint      not null,
    generation      bigint      not null,
    world_size      int         not null,
    shards_stored   int         not null default 0,
    shards          jsonb       not null default '[]',  -- by rank, once complete: see below
    bytes           bigint      not null default 0,
    data_state      jsonb,
    rng_state       jsonb       not null default '{"stored_in": "shards"}',
    complete        bool        not null default false,
    manifest_uri    text        not null default '',
    deleted_why     text        not null default '',
    purged          bool        not null default false,
    created_at      timestamptz not null,               -- the newest shard's report
    completed_at_ms bigint,
    state           text        not null generated always as (
        case
            when purged then 'purged'
            when deleted_why <> '' then 'deleted'
            when complete then 'complete'
            when shards_stored = world_size then 'stored'
            else 'collecting'
        end
    ) stored,
    primary key (job_id, step, generation)
);
create index checkpoints_to_do on checkpoints (job_id) where not purged;

-- The shards of checkpoints that are not complete. Thousands of hosts report to one checkpoint: a
-- growing array in its row would be written again for each of them.
create table shards (
    job_id     text   not null,
    step       bigint not null,
    generation bigint not null,
    rank       int    not null,
    uri        text   not null,
    bytes      bigint not null,
    checksum   text   not null,
    primary key (job_id, step, generation, rank)
);
