-- Incidents of jobs that ended before they had recovered.
alter table incidents
    add column closed_at_ms bigint,
    add column closed_because text;
