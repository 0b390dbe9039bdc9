-- The layout that a generation was placed under; null before it is, and in rows from before.
alter table generations add column layout jsonb;
