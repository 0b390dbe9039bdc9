-- How often a job's ranks snapshot: one row a change, and when the ranks were seen to follow it.
create table intervals (
    job_id text not null references jobs (job_id),
    version bigint not null,
    generation bigint not null,
    memory_every_steps bigint not null,
    object_every_steps bigint not null,
    auto boolean not null,
    reason text not null,
    grounds jsonb not null default '{}',
    waste_before double precision not null default 0,
    waste_after double precision not null default 0,
    decided_at_ms bigint not null,
    in_force_generation bigint,
    in_force_step bigint,
    in_force_at_ms bigint,
    primary key (job_id, version)
);
