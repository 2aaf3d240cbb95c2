-- The messages of sessions. A commit writes their rows only; their words follow in batches, in the order of ``number``: one
-- segment of the word index for hundreds of messages, where each commit by itself would write several pages of it.
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

-- Listing, finding and counting the messages of a session read this index alone.
create unique index messages_by_seq on messages (namespace, session, seq, role, size, id);

-- scope: words for the namespace and the session; words: as vaka.text splits the message. ``rowid`` is messages.number. Single
-- characters of scripts without spaces are searched as prefixes of one character.
create virtual table message_words using fts5 (
    scope, words, tokenize = "ascii tokenchars '_'", prefix = '1', columnsize = 0
);

-- indexed: the last message whose words are in message_words
create table message_progress (indexed integer not null);

insert into message_progress values (0);

-- Sessions that were written before this table existed, and the last event of each whose messages have rows.
create table message_backlog (
    namespace text not null,
    session text not null,
    seq integer not null,
    primary key (namespace, session)
) without rowid;

insert into message_backlog select distinct namespace, session, 0 from events;
