-- What came of steps that hosts outside a job did again, a replica's share each.
create table audits (
    job_id text not null,
    version bigint not null,
    step bigint not null,
    replica bigint not null,
    number bigint not null,
    audit_job_id text not null,
    hosts jsonb not null,
    ranks jsonb not null,
    finding text not null,
    why text not null,
    at_ms bigint not null,
    primary key (job_id, version)
);
