-- What the ledger divides a step's time by: work that was made twice, and ranks that are missing.
alter table step_metrics
    add column shadow_ms double precision not null default 0;
-- That the job asked for (submitted) or was placed with (placed); 0: not told.
alter table marks
    add column ranks bigint not null default 0;
