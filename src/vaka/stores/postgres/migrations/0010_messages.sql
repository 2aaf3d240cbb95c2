-- The messages of sessions, and the words by which they are found. Characters other than ASCII are encoded in words, so that
-- databases of every encoding have them; words that begin with '_n' and '_s' stand for a namespace and a session.
create table vaka.messages (
    number bigint generated always as identity,
    namespace bytea not null,
    session bytea not null,
    seq bigint not null,
    role text not null,
    ts bytea not null,
    path bytea not null, -- the agent, its parts joined by '/'
    size integer not null, -- bytes of the event
    id bytea not null, -- its SHA-256
    name bytea not null, -- the tool of a call
    words tsvector not null,
    primary key (namespace, session, seq) include (role, size)
);

create index messages_by_id on vaka.messages (namespace, session, id);
create unique index messages_by_number on vaka.messages (number);
create index messages_by_words on vaka.messages using gin (words) with (gin_pending_list_limit = 256);

-- Sessions that were written before this table existed, and the last event of each whose messages have rows.
create table vaka.message_backlog (
    namespace bytea not null,
    session bytea not null,
    seq bigint not null,
    primary key (namespace, session)
);

insert into vaka.message_backlog select namespace, id, 0 from vaka.sessions;

create function vaka.forget_messages() returns trigger language plpgsql as $$
begin
    delete from vaka.messages m using gone g where m.namespace = g.namespace and m.session = g.id;
    delete from vaka.message_backlog b using gone g where b.namespace = g.namespace and b.session = g.id;
    return null;
end
$$;

create trigger forget_messages after delete on vaka.sessions referencing old table as gone
for each statement execute function vaka.forget_messages();

-- vaka.write, and the messages of the requests it has written. ``request`` is the number of a message's request, from 1.
create function vaka.write_messages(
    p_requests json, p_bodies bytea[], p_lease double precision, p_messages json
) returns table (r_status text, r_seq bigint) language plpgsql as $$
declare
    v_written boolean[];
begin
    for r_status, r_seq in select w.r_status, w.r_seq from vaka.write(p_requests, p_bodies, p_lease) as w loop
        v_written := v_written || (r_status = 'ok');
        return next;
    end loop;
    insert into vaka.messages (namespace, session, seq, role, ts, path, size, id, name, words)
    select m.namespace, m.session, m.seq, m.role, m.ts, m.path, m.size, m.id, m.name, m.words::tsvector
    from json_to_recordset(p_messages) as m (
        request integer, namespace bytea, session bytea, seq bigint, role text, ts bytea, path bytea, size integer,
        id bytea, name bytea, words text
    )
    where v_written[m.request]
    order by m.request, m.seq
    on conflict do nothing;
end
$$;
