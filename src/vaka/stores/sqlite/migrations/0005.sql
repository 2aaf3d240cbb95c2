-- The owner, the tags and the metadata of a session. Tags are joined by line ends, metadata are JSON; '' for none. The
-- checksum covers them only if set, so that those of the rows before hold. ``owner`` is the handle that writes.
alter table sessions add column belongs_to text not null default '';

alter table sessions add column tags text not null default '';

alter table sessions add column metadata text not null default '';

create index sessions_by_owner on sessions (namespace, belongs_to) where belongs_to <> '';
