-- Vectors by collection and scope. A write to a scope takes its next change; the changed rows and the numbers of the deleted
-- ones tell a process that has the vectors in memory what to read again. Deletions of old changes are dropped.
create table vaka.vector_collections (
    namespace bytea not null,
    collection bytea not null,
    dimension integer not null,
    primary key (namespace, collection)
);

create table vaka.vector_scopes (
    namespace bytea not null,
    collection bytea not null,
    scope bytea not null,
    change bigint not null,
    size bigint not null,
    primary key (namespace, collection, scope)
);

create table vaka.vectors (
    number bigint generated always as identity primary key,
    namespace bytea not null,
    collection bytea not null,
    scope bytea not null,
    id bytea not null,
    text bytea not null,
    metadata bytea not null,
    vector real[] not null,
    change bigint not null,
    version bigint not null
);

-- Numbers do not compress.
alter table vaka.vectors alter column vector set storage external;

create unique index vectors_by_id on vaka.vectors (namespace, collection, scope, id);

create index vectors_by_change on vaka.vectors (namespace, collection, scope, change, number);

create table vaka.vector_deletions (
    namespace bytea not null,
    collection bytea not null,
    scope bytea not null,
    change bigint not null,
    number bigint not null,
    primary key (namespace, collection, scope, change, number)
);
