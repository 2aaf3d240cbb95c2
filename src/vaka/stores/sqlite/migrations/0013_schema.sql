-- Schema 13: all tables of the store. It is the first schema that later versions migrate; a change of it is a file of its
-- own, 0014_NAME.sql, which existing files run after this one.
--
-- Checksums (CRC-32) make a flipped byte in a row an error. Events need none: their hashes form a chain that ends in the
-- session's row. Most tables have no rowid: their rows are short and are read by their key.


-- Sessions ---------------------------------------------------------------------------------------------------------------

-- The index row of each session. The checksum covers the folder and the labels (belongs_to to erased) only if they are set,
-- and never ``minute``, which must be that of ``updated``, nor ``indexed``.
create table sessions (
    namespace text not null,
    session text not null,
    head integer not null, -- the seq of the last event
    hash text not null, -- the hash of the last event
    epoch integer not null,
    term integer not null,
    title text not null,
    agent text not null,
    turn text not null, -- the unfinished turn, '' for none
    inputs integer not null, -- the number of inputs that no turn has taken yet
    pending integer not null, -- the number of open decisions
    closed integer not null,
    created text not null,
    updated text not null,
    origin text not null,
    owner text not null, -- the handle that writes, '' for none
    checksum integer not null,
    minute text not null default '',
    folder text not null default '', -- '' for none
    belongs_to text not null default '', -- the owner of the session
    tags text not null default '', -- joined by line ends
    metadata text not null default '', -- JSON, '' for none
    state text not null default 'active',
    version integer not null default 0, -- the seq of the event that last changed the labels
    erased integer not null default 0, -- the seq of the event that lists what was erased; 0 if nothing was
    indexed integer not null default 0, -- the head up to which the writer of the row has made message rows
    primary key (namespace, session)
) without rowid;

-- Every b-tree a commit touches is a page it writes. What sessions are listed by is therefore coarse enough to stay the same
-- from one commit to the next: the minute of the last change, and whether there is work.
create index sessions_by_minute on sessions (namespace, minute);

create index sessions_with_work on sessions (namespace) where closed = 0 and (turn <> '' or inputs > 0);

create index sessions_by_owner on sessions (namespace, belongs_to) where belongs_to <> '';

create index sessions_by_state on sessions (namespace, state) where state <> 'active';


-- Logs -------------------------------------------------------------------------------------------------------------------

-- With a rowid, events are appended where the file ends, whatever their session, and one over a kilobyte needs no pages
-- of its own: without, each is kept in the b-tree of its key, which is made for short rows and moves its neighbours.
create table events (
    namespace text not null,
    session text not null,
    seq integer not null,
    body blob not null,
    primary key (namespace, session, seq)
);

-- The keys of offers and the blobs that a log names. They share a table, and with it the page that a commit writes.
create table names (
    namespace text not null,
    session text not null,
    kind text not null, -- 'key' of an offer, or 'blob'
    name text not null, -- the key, or the digest of the blob
    seq integer not null, -- the event that has it first; 0 if that is not known
    primary key (namespace, session, kind, name)
) without rowid;

-- Decisions that are open: the events that asked, and their hashes.
create table decisions (
    namespace text not null,
    session text not null,
    decision text not null,
    seq integer not null,
    hash text not null,
    primary key (namespace, session, decision)
) without rowid;

-- Folded states, by the version of the fold. They have a rowid because they are long.
create table snapshots (
    namespace text not null,
    session text not null,
    version text not null,
    seq integer not null,
    checksum integer not null,
    data blob not null,
    primary key (namespace, session, version, seq)
);


-- Blobs and values -------------------------------------------------------------------------------------------------------

-- Bytes by their SHA-256, which verifies them. They have a rowid because they are long.
create table blobs (
    namespace text not null,
    digest text not null,
    created text not null, -- the last time someone stored it
    data blob not null,
    primary key (namespace, digest)
);

create table pairs (
    namespace text not null,
    key text not null,
    checksum integer not null,
    value blob not null,
    expires text not null default '', -- RFC 3339 in UTC; '' for never
    primary key (namespace, key)
) without rowid;

create index pairs_by_expiry on pairs (namespace, expires) where expires <> '';


-- Vectors by collection and scope ----------------------------------------------------------------------------------------

-- The dimension is fixed by the first vector of a collection.
create table vector_collections (
    namespace text not null,
    collection text not null,
    dimension integer not null,
    primary key (namespace, collection)
) without rowid;

-- A write to a scope takes its next change; the changed rows and the numbers of the deleted ones tell a process that has
-- the vectors in memory what to read again. Deletions of old changes are dropped.
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


-- Messages and the words by which they are found -------------------------------------------------------------------------

-- A commit writes the rows of its messages only; their words follow in batches, in the order of ``number``: one segment of
-- the word index for hundreds of messages, where each commit by itself would write several pages of it.
create table messages (
    number integer primary key,
    namespace text not null,
    session text not null,
    seq integer not null,
    role text not null,
    id text not null,
    ts text not null,
    path text not null, -- the agent, its parts joined by '/'
    size integer not null, -- bytes of the event
    checksum integer not null -- CRC-32 of the event
);

create unique index messages_by_seq on messages (namespace, session, seq, role, size);

-- scope: words for the namespace, the session and the id; words: as vaka.text splits the message; characters: those of scripts
-- without spaces, which are searched alone, too. ``rowid`` is messages.number.
create virtual table message_words using fts5 (
    scope, words, characters, tokenize = "ascii tokenchars '_'", columnsize = 0
);

-- Parts of the word index are merged a few pages at a time, with each batch of words: the merges that FTS5 makes by itself
-- take up to 30 milliseconds, for which all other work of the process waits.
insert into message_words (message_words, rank) values ('automerge', 0);

insert into message_words (message_words, rank) values ('usermerge', 16);

insert into message_words (message_words, rank) values ('crisismerge', 64);

-- indexed: the last message whose words are in message_words
create table message_progress (indexed integer not null);

insert into message_progress values (0);

-- Sessions with events that have no message rows yet, and the last event of each whose messages have rows.
create table message_backlog (
    namespace text not null,
    session text not null,
    seq integer not null,
    primary key (namespace, session)
) without rowid;

-- A process of a version that makes no message rows leaves ``sessions.indexed`` as it is. The triggers then do what newer
-- versions do themselves.
create trigger session_created_without_messages after insert on sessions
when new.head > 0 and new.indexed = 0
begin
    insert or ignore into message_backlog values (new.namespace, new.session, 0);
end;

create trigger session_grown_without_messages after update of head on sessions
when new.head > old.head and new.indexed = old.indexed
begin
    insert or ignore into message_backlog values (new.namespace, new.session, old.head);
end;

-- A trigger cannot delete from message_words: words without a message are not found, and the next message with their number
-- replaces them.
create trigger session_deleted_with_messages after delete on sessions
when exists (select 1 from messages where namespace = old.namespace and session = old.session)
begin
    delete from messages where namespace = old.namespace and session = old.session;
    update message_progress set indexed = min(indexed, (select ifnull(max(number), 0) from messages));
end;
