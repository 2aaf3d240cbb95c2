-- The folder that a session belongs to, by which sessions are listed; '' for none. The checksum covers it only if set, so
-- that those of the rows before hold.
alter table sessions add column folder text not null default '';
