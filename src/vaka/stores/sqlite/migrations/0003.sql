-- With a rowid, events are appended where the file ends, whatever their session, and one over a kilobyte needs no pages
-- of its own: without, each is kept in the b-tree of its key, which is made for short rows and moves its neighbours.
alter table events rename to events_before;

create table events (
    namespace text not null,
    session text not null,
    seq integer not null,
    body blob not null,
    primary key (namespace, session, seq)
);

insert into events select namespace, session, seq, body from events_before order by namespace, session, seq;

drop table events_before;
