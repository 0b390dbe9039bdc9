-- Of the batch that a step was made from: what tells which batches a suspect step was made from when
-- they are not numbered like the steps. Null: a step that was kept before there was this column.
alter table step_metrics
    add column position bigint;
