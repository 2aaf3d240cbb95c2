-- Every b-tree a commit touches is a page it writes. What is listed by is therefore coarse enough to stay the same from
-- one commit to the next: the minute of the last change, and whether there is work. Keys and the blobs that are named
-- share a table, and with it a page.
alter table sessions add column minute text not null default '';

update sessions set minute = substr(updated, 1, 16);

drop index sessions_by_change;

drop index sessions_with_work;

create index sessions_by_minute on sessions (namespace, minute);

create index sessions_with_work on sessions (namespace) where closed = 0 and (turn <> '' or inputs > 0);

-- kind: 'key' of an offer, or the digest of a 'blob'; seq: the event that has it first (0: an older schema did not say)
create table names (
    namespace text not null,
    session text not null,
    kind text not null,
    name text not null,
    seq integer not null,
    primary key (namespace, session, kind, name)
) without rowid;

insert into names select namespace, session, 'key', key, seq from keys;

insert into names select namespace, session, 'blob', digest, 0 from refs;

drop table keys;

drop table refs;
