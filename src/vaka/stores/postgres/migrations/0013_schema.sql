-- Schema 13: all tables and functions of the store. It is the first schema that later versions migrate; a change of it is a
-- file of its own, 0014_NAME.sql, which existing databases run after this one.
--
-- What people write (ids, titles, names) is kept as the bytes of its UTF-8: text columns hold no NUL, and bytes compare alike
-- under every locale and encoding. Where it may be long and is only looked up, its SHA-256 stands for it: an index takes no
-- more than 2700 bytes.


-- Sessions ---------------------------------------------------------------------------------------------------------------

-- The index row of each session, and the claim of the handle that writes it.
create table vaka.sessions (
    namespace bytea not null,
    id bytea not null,
    head bigint not null, -- the seq of the last event
    hash text not null, -- the hash of the last event
    epoch bigint not null,
    title bytea not null,
    folded bytea not null, -- the title in one case, for searching
    agent bytea not null,
    turn bytea not null, -- the unfinished turn, '' for none
    inputs integer not null, -- the number of inputs that no turn has taken yet
    pending integer not null, -- the number of open decisions
    closed boolean not null,
    created bytea not null,
    updated bytea not null,
    origin bytea not null,
    term bigint not null,
    owner uuid, -- the claim, over when lease_until has passed
    lease_until timestamptz,
    folder bytea not null default '', -- '' for none
    belongs_to bytea not null default '', -- the owner of the session
    tags bytea not null default '', -- joined by line ends
    metadata bytea not null default '', -- JSON, '' for none
    state bytea not null default 'active',
    version bigint not null default 0, -- the seq of the event that last changed the labels
    erased bigint not null default 0 -- the seq of the event that lists what was erased; 0 if nothing was
) with (fillfactor = 70);

create index sessions_by_change on vaka.sessions (namespace, updated, id);

create index sessions_with_work on vaka.sessions (namespace, updated, id)
    where not closed and (turn <> '' or inputs > 0);

-- Of two indexes that cost the same in an empty table the planner takes the newer one: that must be the primary key.
alter table vaka.sessions add primary key (namespace, id);

create index sessions_by_owner on vaka.sessions (namespace, belongs_to) where belongs_to <> '';

create index sessions_by_state on vaka.sessions (namespace, state) where state <> 'active';


-- Logs -------------------------------------------------------------------------------------------------------------------

create table vaka.events (
    namespace bytea not null,
    session bytea not null,
    seq bigint not null,
    body bytea not null,
    primary key (namespace, session, seq)
);

-- The keys of offers, and the events that have them.
create table vaka.keys (
    namespace bytea not null,
    session bytea not null,
    key bytea not null, -- its SHA-256
    seq bigint not null,
    primary key (namespace, session, key)
);

-- Decisions that are open.
create table vaka.decisions (
    namespace bytea not null,
    session bytea not null,
    id bytea not null, -- its SHA-256
    seq bigint not null, -- of the event that asked
    primary key (namespace, session, id)
);

-- Folded states, by the version of the fold.
create table vaka.snapshots (
    namespace bytea not null,
    session bytea not null,
    version bytea not null, -- its SHA-256
    seq bigint not null,
    body bytea not null,
    primary key (namespace, session, version, seq)
);

-- Open blocks, for followers elsewhere. Lost in a crash, as they may be.
create unlogged table vaka.live_blocks (
    namespace bytea not null,
    session bytea not null,
    block bytea not null, -- SHA-256 of its name
    body bytea not null,
    valid_until timestamptz not null,
    primary key (namespace, session, block)
);


-- Blobs and values -------------------------------------------------------------------------------------------------------

create table vaka.blobs (
    namespace bytea not null,
    digest bytea not null,
    body bytea not null,
    put timestamptz not null, -- the last time someone brought it
    primary key (namespace, digest)
);

-- The blobs that a log names.
create table vaka.blob_refs (
    namespace bytea not null,
    session bytea not null,
    digest bytea not null,
    primary key (namespace, session, digest)
);

create index blob_refs_by_digest on vaka.blob_refs (namespace, digest);

create table vaka.vals (
    namespace bytea not null,
    digest bytea not null, -- of the key
    key bytea not null,
    body bytea not null,
    expires bytea not null default '', -- RFC 3339 in UTC; '' for never
    primary key (namespace, digest)
);

create index vals_by_key on vaka.vals (namespace, substring(key from 1 for 256));

create index vals_by_expiry on vaka.vals (namespace, expires) where expires <> '';


-- Vectors by collection and scope ----------------------------------------------------------------------------------------

-- The dimension is fixed by the first vector of a collection.
create table vaka.vector_collections (
    namespace bytea not null,
    collection bytea not null,
    dimension integer not null,
    primary key (namespace, collection)
);

-- A write to a scope takes its next change; the changed rows and the numbers of the deleted ones tell a process that has
-- the vectors in memory what to read again. Deletions of old changes are dropped.
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


-- Messages and the words by which they are found -------------------------------------------------------------------------

-- Characters other than ASCII are encoded in words, so that databases of every encoding have them; words that begin with
-- '_n' and '_s' stand for a namespace and a session.
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

-- Sessions with events that have no message rows yet, and the last event of each whose messages have rows.
create table vaka.message_backlog (
    namespace bytea not null,
    session bytea not null,
    seq bigint not null,
    primary key (namespace, session)
);

create function vaka.forget_messages() returns trigger language plpgsql as $$
begin
    delete from vaka.messages m using gone g where m.namespace = g.namespace and m.session = g.id;
    delete from vaka.message_backlog b using gone g where b.namespace = g.namespace and b.session = g.id;
    return null;
end
$$;

create trigger forget_messages after delete on vaka.sessions referencing old table as gone
for each statement execute function vaka.forget_messages();


-- Claims and writes ------------------------------------------------------------------------------------------------------
--
-- One round trip claims or writes many sessions. The plans of these functions do not depend on their arguments, and they are
-- made once in each connection, maybe while the tables are empty: so only indexes are considered.

-- Claim many sessions, each for its owner. Claim n is the n-th element of the arrays. Each has its own answer.
--   ok      claimed; session is its row
--   busy    another claim is not over
--   free    there is no such session: it exists from its first event on
create function vaka.claim(
    p_namespace bytea[], p_session bytea[], p_owner uuid[], p_lease double precision
) returns table (status text, session vaka.sessions) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    for n in 1 .. cardinality(p_namespace) loop
        status := 'free';
        session := null;
        perform from vaka.sessions s where s.namespace = p_namespace[n] and s.id = p_session[n];
        if found then
            -- The owner may claim again: its first claim may have been made although the answer was lost.
            update vaka.sessions s
            set term = s.term + 1, owner = p_owner[n], lease_until = now() + make_interval(secs => p_lease)
            where s.namespace = p_namespace[n] and s.id = p_session[n]
                and (s.owner is null or s.owner = p_owner[n] or s.lease_until < now())
            returning s.* into session;
            if found then
                status := 'ok';
            else -- it has another writer, unless it was deleted meanwhile
                perform from vaka.sessions s where s.namespace = p_namespace[n] and s.id = p_session[n];
                status := case when found then 'busy' else 'free' end;
            end if;
        end if;
        return next;
    end loop;
end
$$;

-- Write to many sessions. A request is an object of p_requests; its head - base events are the next elements of p_bodies.
-- An owner means an append under a claim; none means an offer under a key. idle means an append to a session whose claim is
-- over, as its writer for this one transaction: term is one more than that of the session. base is the head the request
-- builds on: 0 makes the session. keys and asked are lists of [digest, seq], settled and blobs of digests; null in settled
-- settles all decisions. Requests without folder and labels leave them as they are. Each request has its own answer, in
-- their order:
--   ok      written
--   known   an offer with this key was written before, as event r_seq
--   moved   the head is not base
--   stale   the claim is over
--   busy    an idle session has a writer
--   gone    there is no such session to offer to
create function vaka.write_events(
    p_requests json, p_bodies bytea[], p_lease double precision
) returns table (r_status text, r_seq bigint) language plpgsql
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    r record;
    v_until timestamptz := now() + make_interval(secs => p_lease);
    v_first bigint := 0; -- elements of p_bodies before those of this request
    v_base bigint;
    v_owner uuid;
    v_seq bigint;
begin
    for r in select * from json_to_recordset(p_requests) as x (
        namespace bytea, session bytea, owner uuid, term bigint, idle boolean, base bigint, key bytea, release boolean,
        notice text, head bigint, hash text, epoch bigint, title bytea, folded bytea, agent bytea, turn bytea, inputs integer,
        pending integer, closed boolean, created bytea, updated bytea, origin bytea,
        folder bytea, belongs_to bytea, tags bytea, metadata bytea, state bytea, version bigint,
        keys json, settled json, asked json, blobs json
    ) loop
        r_status := 'ok';
        r_seq := r.head;
        v_base := r.base;
        if r.key is not null then
            perform from vaka.keys k where k.namespace = r.namespace and k.session = r.session and k.key = r.key;
            if found then
                v_base := null; -- matches no session: nothing is written
            end if;
        end if;
        if r.owner is not null and r.base = 0 then
            insert into vaka.sessions (
                namespace, id, head, hash, epoch, title, folded, agent, turn, inputs, pending, closed, created, updated,
                origin, folder, belongs_to, tags, metadata, state, version, term, owner, lease_until
            ) values (
                r.namespace, r.session, r.head, r.hash, r.epoch, r.title, r.folded, r.agent, r.turn, r.inputs, r.pending,
                r.closed, r.created, r.updated, r.origin, coalesce(r.folder, ''), coalesce(r.belongs_to, ''),
                coalesce(r.tags, ''), coalesce(r.metadata, ''), coalesce(r.state, 'active'), coalesce(r.version, 0), r.term,
                case when r.release then null else r.owner end, case when r.release then null else v_until end
            ) on conflict do nothing;
        else
            update vaka.sessions s set
                head = r.head, hash = r.hash, epoch = r.epoch, title = r.title, folded = r.folded, agent = r.agent,
                turn = r.turn, inputs = r.inputs, pending = r.pending, closed = r.closed, created = r.created,
                updated = r.updated, origin = r.origin, term = coalesce(r.term, s.term),
                folder = coalesce(r.folder, s.folder), belongs_to = coalesce(r.belongs_to, s.belongs_to),
                tags = coalesce(r.tags, s.tags), metadata = coalesce(r.metadata, s.metadata),
                state = coalesce(r.state, s.state), version = coalesce(r.version, s.version),
                owner = case when r.release then null else s.owner end,
                lease_until = case when r.release then null when r.owner is null then s.lease_until else v_until end
            where s.namespace = r.namespace and s.id = r.session and s.head = v_base
                and (r.owner is null or (s.owner = r.owner and s.term = r.term)
                    or (r.idle and s.term = r.term - 1 and (s.owner is null or s.lease_until < now())));
        end if;
        if found then
            insert into vaka.events (namespace, session, seq, body)
            select r.namespace, r.session, r.base + e.number, p_bodies[v_first + e.number]
            from generate_series(1, r.head - r.base) as e (number);
            if r.keys is not null then
                insert into vaka.keys (namespace, session, key, seq)
                select r.namespace, r.session, (k.pair ->> 0)::bytea, (k.pair ->> 1)::bigint
                from json_array_elements(r.keys) as k (pair)
                on conflict do nothing;
            end if;
            if r.settled is not null then
                delete from vaka.decisions d using json_array_elements_text(r.settled) as s (id)
                where d.namespace = r.namespace and d.session = r.session and (s.id is null or d.id = s.id::bytea);
            end if;
            if r.asked is not null then
                insert into vaka.decisions (namespace, session, id, seq)
                select r.namespace, r.session, (d.pair ->> 0)::bytea, (d.pair ->> 1)::bigint
                from json_array_elements(r.asked) as d (pair)
                on conflict (namespace, session, id) do update set seq = excluded.seq;
            end if;
            if r.blobs is not null then
                insert into vaka.blob_refs (namespace, session, digest)
                select r.namespace, r.session, b.digest::bytea from json_array_elements_text(r.blobs) as b (digest)
                on conflict do nothing;
            end if;
            if r.notice is not null then
                perform pg_notify('vaka', r.notice);
            end if;
        else
            select s.owner into v_owner from vaka.sessions s where s.namespace = r.namespace and s.id = r.session;
            if r.idle then
                perform from vaka.sessions s
                where s.namespace = r.namespace and s.id = r.session and s.owner is not null and s.lease_until >= now();
                r_status := case when found then 'busy' else 'moved' end;
            elsif r.owner is null then
                r_status := case when found then 'moved' else 'gone' end;
                select k.seq into v_seq from vaka.keys k
                where k.namespace = r.namespace and k.session = r.session and k.key = r.key;
                if found then
                    r_status := 'known';
                    r_seq := v_seq;
                end if;
            else
                r_status := case when v_owner = r.owner then 'moved' else 'stale' end;
            end if;
        end if;
        v_first := v_first + r.head - r.base;
        return next;
    end loop;
end
$$;

-- vaka.write_events, and the messages of the requests it has written. ``request`` is the number of a message's request, from 1.
create function vaka.write_messages(
    p_requests json, p_bodies bytea[], p_lease double precision, p_messages json
) returns table (r_status text, r_seq bigint) language plpgsql as $$
declare
    v_written boolean[];
begin
    for r_status, r_seq in select w.r_status, w.r_seq from vaka.write_events(p_requests, p_bodies, p_lease) as w loop
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

-- vaka.write_events for a caller that makes no message rows: the sessions get them when they are needed.
create function vaka.write(
    p_requests json, p_bodies bytea[], p_lease double precision
) returns table (r_status text, r_seq bigint) language plpgsql as $$
declare
    v_written boolean[];
begin
    for r_status, r_seq in select w.r_status, w.r_seq from vaka.write_events(p_requests, p_bodies, p_lease) as w loop
        v_written := v_written || (r_status = 'ok');
        return next;
    end loop;
    insert into vaka.message_backlog (namespace, session, seq)
    select x.namespace, x.session, x.base
    from rows from (json_to_recordset(p_requests) as (namespace bytea, session bytea, base bigint))
        with ordinality as x (namespace, session, base, number)
    where v_written[x.number]
    order by x.number
    on conflict do nothing;
end
$$;

-- vaka.write for callers that send arrays instead of JSON, without folder and labels. Request n is the n-th element of the
-- arrays up to p_origin; the rows that go with it say n in their first array. An offer has its key in p_key. The answers
-- are those of vaka.write_events.
create function vaka.append(
    p_namespace bytea[], p_session bytea[], p_owner uuid[], p_term bigint[], p_base bigint[], p_key bytea[],
    p_release boolean[], p_notice text[],
    p_head bigint[], p_hash text[], p_epoch bigint[], p_title bytea[], p_folded bytea[], p_agent bytea[], p_turn bytea[],
    p_inputs integer[], p_pending integer[], p_closed boolean[], p_created bytea[], p_updated bytea[], p_origin bytea[],
    e_request integer[], e_seq bigint[], e_body bytea[],
    k_request integer[], k_key bytea[], k_seq bigint[],
    s_request integer[], s_id bytea[], -- decisions that are settled; null settles all
    d_request integer[], d_id bytea[], d_seq bigint[],
    b_request integer[], b_digest bytea[],
    p_lease double precision
) returns table (r_request integer, r_status text, r_seq bigint) language plpgsql as $$
declare
    good integer[] := '{}';
    v_until timestamptz := now() + make_interval(secs => p_lease);
    v_owner uuid;
    v_seq bigint;
begin
    for n in 1 .. cardinality(p_namespace) loop
        r_request := n;
        r_status := 'ok';
        r_seq := p_head[n];
        if p_owner[n] is not null and p_base[n] = 0 then
            insert into vaka.sessions (
                namespace, id, head, hash, epoch, title, folded, agent, turn, inputs, pending, closed, created, updated,
                origin, term, owner, lease_until
            ) values (
                p_namespace[n], p_session[n], p_head[n], p_hash[n], p_epoch[n], p_title[n], p_folded[n], p_agent[n],
                p_turn[n], p_inputs[n], p_pending[n], p_closed[n], p_created[n], p_updated[n], p_origin[n], p_term[n],
                case when p_release[n] then null else p_owner[n] end, case when p_release[n] then null else v_until end
            ) on conflict do nothing;
        else
            update vaka.sessions s set
                head = p_head[n], hash = p_hash[n], epoch = p_epoch[n], title = p_title[n], folded = p_folded[n],
                agent = p_agent[n], turn = p_turn[n], inputs = p_inputs[n], pending = p_pending[n],
                closed = p_closed[n], created = p_created[n], updated = p_updated[n], origin = p_origin[n],
                owner = case when p_release[n] then null else s.owner end,
                lease_until = case when p_release[n] then null when p_owner[n] is null then s.lease_until else v_until end
            where s.namespace = p_namespace[n] and s.id = p_session[n] and s.head = p_base[n]
                and (p_owner[n] is null or (s.owner = p_owner[n] and s.term = p_term[n]))
                and (p_key[n] is null or not exists (
                    select from vaka.keys k
                    where k.namespace = p_namespace[n] and k.session = p_session[n] and k.key = p_key[n]));
        end if;
        if found then
            good := good || n;
            if p_notice[n] is not null then
                perform pg_notify('vaka', p_notice[n]);
            end if;
        else
            select s.owner into v_owner from vaka.sessions s where s.namespace = p_namespace[n] and s.id = p_session[n];
            if p_owner[n] is null then
                r_status := case when found then 'moved' else 'gone' end;
                select k.seq into v_seq from vaka.keys k
                where k.namespace = p_namespace[n] and k.session = p_session[n] and k.key = p_key[n];
                if found then
                    r_status := 'known';
                    r_seq := v_seq;
                end if;
            else
                r_status := case when v_owner = p_owner[n] then 'moved' else 'stale' end;
            end if;
        end if;
        return next;
    end loop;
    insert into vaka.events (namespace, session, seq, body)
    select p_namespace[e.n], p_session[e.n], e.seq, e.body
    from unnest(e_request, e_seq, e_body) as e (n, seq, body) where e.n = any (good);
    if cardinality(k_request) > 0 then
        insert into vaka.keys (namespace, session, key, seq)
        select p_namespace[k.n], p_session[k.n], k.key, k.seq
        from unnest(k_request, k_key, k_seq) as k (n, key, seq) where k.n = any (good)
        on conflict do nothing;
    end if;
    if cardinality(s_request) > 0 then
        delete from vaka.decisions d using unnest(s_request, s_id) as s (n, id)
        where s.n = any (good) and d.namespace = p_namespace[s.n] and d.session = p_session[s.n]
            and (s.id is null or d.id = s.id);
    end if;
    if cardinality(d_request) > 0 then
        insert into vaka.decisions (namespace, session, id, seq)
        select p_namespace[d.n], p_session[d.n], d.id, d.seq
        from unnest(d_request, d_id, d_seq) as d (n, id, seq) where d.n = any (good)
        on conflict (namespace, session, id) do update set seq = excluded.seq;
    end if;
    if cardinality(b_request) > 0 then
        insert into vaka.blob_refs (namespace, session, digest)
        select distinct p_namespace[b.n], p_session[b.n], b.digest
        from unnest(b_request, b_digest) as b (n, digest) where b.n = any (good)
        on conflict do nothing;
    end if;
end
$$;


-- Deletion ---------------------------------------------------------------------------------------------------------------

-- Whether a session has nothing left to do and has not changed since.
create function vaka.done(s vaka.sessions, p_before bytea) returns boolean language sql stable as $$
    select s.updated < p_before and s.turn = '' and s.inputs = 0 and s.pending = 0 and not exists (
        select from vaka.decisions d where d.namespace = s.namespace and d.session = s.id)
$$;

-- Forget sessions that no writer holds: one, or with p_before all that are done and have not changed since. Returns them,
-- each with the bytes its events had. With p_dry it only tells. The values of a session are those whose key begins with
-- 'session/', the length of the session's name in bytes, '/', the name and '/'.
create function vaka.forget(
    p_namespace bytea, p_session bytea, p_before bytea, p_dry boolean
) returns table (r_session bytea, r_bytes bigint) language plpgsql as $$
declare
    gone bytea[];
begin
    if p_dry then
        return query select s.id, (select coalesce(sum(length(e.body)), 0)::bigint from vaka.events e
            where e.namespace = s.namespace and e.session = s.id)
        from vaka.sessions s
        where s.namespace = p_namespace and (s.owner is null or s.lease_until < now()) and vaka.done(s, p_before);
        return;
    end if;
    with removed as (
        delete from vaka.sessions s
        where s.namespace = p_namespace and (p_session is null or s.id = p_session)
            and (s.owner is null or s.lease_until < now()) and (p_before is null or vaka.done(s, p_before))
        returning s.id
    ) select array_agg(id) into gone from removed;
    return query with removed as (
        delete from vaka.events e where e.namespace = p_namespace and e.session = any (gone)
        returning e.session, length(e.body) as bytes
    ) select session, sum(bytes)::bigint from removed group by session order by session;
    delete from vaka.keys where namespace = p_namespace and session = any (gone);
    delete from vaka.decisions where namespace = p_namespace and session = any (gone);
    delete from vaka.snapshots where namespace = p_namespace and session = any (gone);
    delete from vaka.blob_refs where namespace = p_namespace and session = any (gone);
    delete from vaka.live_blocks where namespace = p_namespace and session = any (gone);
    -- The first bytes of a key are indexed; '0' is the byte after '/'.
    delete from vaka.vals v using (
        select convert_to('session/' || length(id) || '/', 'UTF8') || id as name from unnest(gone) as id
    ) as g
    where v.namespace = p_namespace
        and substring(v.key from 1 for 256) >= substring(g.name || '/'::bytea from 1 for 256)
        and substring(v.key from 1 for 256) <= substring(g.name || '0'::bytea from 1 for 256)
        and substring(v.key from 1 for length(g.name) + 1) = g.name || '/'::bytea;
end
$$;
