-- How hosts that failed come back, what their probes said, and who is told of a cordoned one.
drop view hosts;
alter table host_facts drop column state;
alter table host_facts
    add column probes          bool   not null default false,
    add column awaits          text   not null default '',
    add column fault           text   not null default '',
    add column relapses        int    not null default 0,
    add column held_until_ms   bigint,
    add column returns         bool   not null default false,
    add column maintenance     text   not null default '',
    add column maintenance_until_ms bigint,
    add column last_probe      jsonb;
alter table host_facts
    add column state text not null generated always as (
        case
            when not present then 'left'
            when awaits <> '' then 'probing'
            when cordoned then 'cordoned'
            when job_id <> '' then 'active'
            else 'spare'
        end
    ) stored;

create view hosts as
    select host_facts.*, heartbeats.last_heartbeat
    from host_facts left join heartbeats on heartbeats.host_id = host_facts.id;

-- What the repair hook is to be told, written with the cordon: a killed inventory forgets none.
create table repairs (
    position      bigint primary key,  -- of the cordon's event
    event_id      text   not null,
    host_id       text   not null,
    body          jsonb  not null,
    attempts      int    not null default 0,
    due_ms        bigint not null default 0,
    delivered_ms  bigint,
    given_up_ms   bigint,
    last_error    text   not null default ''
);
create index repairs_open on repairs (due_ms) where delivered_ms is null and given_up_ms is null;
create index repairs_by_host on repairs (host_id, position);
