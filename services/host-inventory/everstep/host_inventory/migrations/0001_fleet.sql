-- The fleet, for people and queries; decisions are made from events alone.
create table host_facts (
    id                 text   primary key,
    pod                text   not null,
    power              text   not null,
    chips              int    not null,
    address            text   not null,
    peer_port          int    not null,
    agent_epoch        text   not null,
    joined_at_ms       bigint not null,
    present            bool   not null default true,
    job_id             text   not null default '',
    cordoned           bool   not null default false,
    cordon_reason      text   not null default '',
    cordon_incident_id text   not null default '',
    cordoned_at_ms     bigint,
    error_counts       jsonb  not null default '{}',
    state              text   not null generated always as (
        case
            when not present then 'left'
            when cordoned then 'cordoned'
            when job_id <> '' then 'active'
            else 'spare'
        end
    ) stored
);
create index host_facts_by_job on host_facts (job_id) where job_id <> '';

-- A measurement, written every second for every host: apart from the facts, so that it never waits
-- for a placement's locks; unlogged, because after a crash it is new again within a second.
create unlogged table heartbeats (
    host_id        text        primary key,
    last_heartbeat timestamptz not null
) with (fillfactor = 50);

create view hosts as
    select host_facts.*, heartbeats.last_heartbeat
    from host_facts left join heartbeats on heartbeats.host_id = host_facts.id;

create table placements (
    job_id       text   primary key,
    generation   bigint not null,
    layout       jsonb  not null,
    hosts        jsonb  not null,
    replacements jsonb  not null,
    placed_at_ms bigint not null
);
