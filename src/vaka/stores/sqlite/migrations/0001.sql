-- Checksums (CRC-32) make a flipped byte in a row an error. Events need none: their hashes form a chain that ends in
-- the session's row.
create table sessions (
    namespace text not null,
    session text not null,
    head integer not null,
    hash text not null,
    epoch integer not null,
    term integer not null,
    title text not null,
    agent text not null,
    turn text not null,
    inputs integer not null,
    pending integer not null,
    closed integer not null,
    created text not null,
    updated text not null,
    origin text not null,
    owner text not null,
    checksum integer not null,
    primary key (namespace, session)
) without rowid;

create index sessions_by_change on sessions (namespace, updated, session);

create index sessions_with_work on sessions (namespace, updated, session) where closed = 0 and (turn <> '' or inputs > 0);

create table events (
    namespace text not null,
    session text not null,
    seq integer not null,
    body blob not null,
    primary key (namespace, session, seq)
) without rowid;

create table keys (
    namespace text not null,
    session text not null,
    key text not null,
    seq integer not null,
    primary key (namespace, session, key)
) without rowid;

create table decisions (
    namespace text not null,
    session text not null,
    decision text not null,
    seq integer not null,
    hash text not null,
    primary key (namespace, session, decision)
) without rowid;

create table blobs (
    namespace text not null,
    digest text not null,
    created text not null,
    data blob not null,
    primary key (namespace, digest)
);

create table refs (
    namespace text not null,
    session text not null,
    digest text not null,
    primary key (namespace, session, digest)
) without rowid;

create index refs_by_digest on refs (namespace, digest);

create table snapshots (
    namespace text not null,
    session text not null,
    version text not null,
    seq integer not null,
    checksum integer not null,
    data blob not null,
    primary key (namespace, session, version, seq)
);

create table pairs (
    namespace text not null,
    key text not null,
    checksum integer not null,
    value blob not null,
    primary key (namespace, key)
) without rowid;
