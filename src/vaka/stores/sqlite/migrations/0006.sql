-- The state of a session, and the seq of the event that last changed its labels (0: an older schema did not say). The
-- checksum covers them only if set, so that those of the rows before hold.
alter table sessions add column state text not null default 'active';

alter table sessions add column version integer not null default 0;

create index sessions_by_state on sessions (namespace, state) where state <> 'active';
