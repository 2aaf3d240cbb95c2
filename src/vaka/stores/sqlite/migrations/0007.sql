-- When a value expires, as RFC 3339 in UTC; '' for never.
alter table pairs add column expires text not null default '';

create index pairs_by_expiry on pairs (namespace, expires) where expires <> '';
