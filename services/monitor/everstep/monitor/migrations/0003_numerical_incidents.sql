-- From which step on states are suspect (0: none is), and which batches may have made them so.
alter table incidents
    add column suspect_from_step bigint not null default 0,
    add column skipped jsonb not null default '[]';
