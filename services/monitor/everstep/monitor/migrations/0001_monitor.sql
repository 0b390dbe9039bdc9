-- Read tables of the monitor. `incidents` and `marks` are projections of its events; `step_metrics`
-- holds measurements and has no events behind it.
create table incidents (
    incident_id text primary key,
    job_id text not null,
    generation bigint not null,
    kind text not null,
    ranks jsonb not null,
    hosts jsonb not null,
    step bigint not null,
    action text not null,
    reason text not null,
    detail text not null,
    failed_at_ms bigint not null,
    detected_at_ms bigint not null,
    recovered_at_ms bigint,
    lost_ms bigint,
    lost_steps bigint,
    detected_at timestamptz generated always as (to_timestamp(detected_at_ms / 1000.0)) stored,
    recovered_at timestamptz generated always as (to_timestamp(recovered_at_ms / 1000.0)) stored,
    lost_seconds double precision generated always as (lost_ms / 1000.0) stored
);
create index incidents_by_job on incidents (job_id, detected_at_ms);

create table marks (
    job_id text not null,
    version bigint not null,
    generation bigint not null,
    mark text not null,
    cause text not null,
    step bigint not null,
    at_ms bigint not null,
    primary key (job_id, version)
);

create table refused_sources (
    job_id text not null,
    version bigint not null,
    generation bigint not null,
    rank bigint not null,
    step bigint not null,
    kind text not null,
    host_id text not null,
    uri text not null,
    detail text not null,
    at_ms bigint not null,
    primary key (job_id, version)
);

create table step_metrics (
    job_id text not null,
    generation bigint not null,
    step bigint not null,
    loss double precision,
    grad_norm double precision,
    tokens bigint not null,
    step_time_ms double precision not null,
    blocked_ms_min double precision not null,
    data_wait_ms double precision not null,
    stall_ms double precision not null,
    completed_at_ms bigint not null,
    health text not null,
    primary key (job_id, generation, step)
);
