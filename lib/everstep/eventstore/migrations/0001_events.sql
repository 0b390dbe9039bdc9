-- The service's decisions, and what it has handled of other services' decisions.
create table events (
    position    bigserial primary key,   -- grows in commit order: see postgres.py
    stream      text        not null,
    version     bigint      not null,
    event_id    text        not null unique,
    type        text        not null,
    data        jsonb       not null,
    metadata    jsonb       not null,
    recorded_at timestamptz not null,
    unique (stream, version)
);

create table consumed (
    consumer text   not null,
    source   text   not null,
    position bigint not null,
    primary key (consumer, source)
);

create table cursors (
    name     text   primary key,
    position bigint not null
);
