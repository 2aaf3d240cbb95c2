-- When a value expires, as RFC 3339 in UTC; '' for never.
alter table vaka.vals add column expires bytea not null default '';

create index vals_by_expiry on vaka.vals (namespace, expires) where expires <> '';
