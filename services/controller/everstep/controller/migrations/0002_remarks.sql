-- Hosts that a generation had better do without, and what the placement could not fulfil.
alter table generations
    add column unsound_hosts jsonb not null default '[]',
    add column remark text not null default '';
