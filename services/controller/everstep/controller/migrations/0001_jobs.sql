-- Read tables of the controller; rebuilt from its events at any time.
create table jobs (
    job_id text primary key,
    name text not null,
    phase text not null,
    generation bigint not null,
    step bigint not null default 0,
    spec jsonb not null,
    placement jsonb,
    restore_step bigint,
    missing integer not null default 0,
    why text not null default '',
    detail text not null default '',
    submitted_at_ms bigint not null,
    ended_at_ms bigint
);

-- One row a generation: what began it and when each of its stages was done.
create table generations (
    job_id text not null references jobs (job_id),
    generation bigint not null,
    cause text not null,
    incident_id text not null default '',
    lost_hosts jsonb not null default '[]',
    replacements jsonb not null default '[]',
    unreachable jsonb not null default '[]',
    from_step bigint not null,
    restore_step bigint,
    own_memory integer,
    peer_memory integer,
    object_store integer,
    begun_at_ms bigint not null,
    fenced_at_ms bigint,
    placed_at_ms bigint,
    short_at_ms bigint,
    planned_at_ms bigint,
    started_at_ms bigint,
    running_at_ms bigint,
    primary key (job_id, generation)
);
