-- The seq of the event that lists what was erased; 0 if nothing was. Only the erasure writes it.
alter table vaka.sessions add column erased bigint not null default 0;
