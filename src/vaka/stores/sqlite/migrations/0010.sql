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

create unique index messages_by_seq on messages (namespace, session, seq, role, size);

-- scope: words for the namespace, the session and the id; words: as vaka.text splits the message; characters: those of scripts
-- without spaces, which are searched alone, too. ``rowid`` is messages.number.
create virtual table message_words using fts5 (
    scope, words, characters, tokenize = "ascii tokenchars '_'", columnsize = 0
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
