-- Vectors by collection and scope. A write to a scope takes its next change; the changed rows and the numbers of the deleted
-- ones tell a process that has the vectors in memory what to read again. Deletions of old changes are dropped.
create table vector_collections (
    namespace text not null,
    collection text not null,
    dimension integer not null,
    primary key (namespace, collection)
) without rowid;

create table vector_scopes (
    namespace text not null,
    collection text not null,
    scope text not null,
    change integer not null,
    primary key (namespace, collection, scope)
) without rowid;

create table vectors (
    number integer primary key,
    namespace text not null,
    collection text not null,
    scope text not null,
    id text not null,
    text text not null,
    metadata blob not null,
    checksum integer not null,
    vector blob not null,
    vector_checksum integer not null,
    change integer not null,
    version integer not null
);

create unique index vectors_by_id on vectors (namespace, collection, scope, id);

create index vectors_by_change on vectors (namespace, collection, scope, change);

create table vector_deletions (
    namespace text not null,
    collection text not null,
    scope text not null,
    change integer not null,
    number integer not null,
    primary key (namespace, collection, scope, change, number)
) without rowid;
