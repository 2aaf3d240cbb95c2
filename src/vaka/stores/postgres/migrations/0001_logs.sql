-- The logs and their index. What people write (ids, titles, names) is kept as the bytes of its UTF-8: text columns hold no
-- NUL, and bytes compare alike under every locale and encoding. Where it may be long and is only looked up, its SHA-256
-- stands for it: an index takes no more than 2700 bytes.

create table vaka.sessions (
    namespace bytea not null,
    id bytea not null,
    head bigint not null,
    hash text not null,
    epoch bigint not null,
    title bytea not null,
    folded bytea not null, -- the title in one case, for searching
    agent bytea not null,
    turn bytea not null,
    inputs integer not null,
    pending integer not null,
    closed boolean not null,
    created bytea not null,
    updated bytea not null,
    origin bytea not null,
    term bigint not null,
    owner uuid, -- the claim, over when lease_until has passed
    lease_until timestamptz,
    primary key (namespace, id)
) with (fillfactor = 70);

create index sessions_by_change on vaka.sessions (namespace, updated, id);
create index sessions_with_work on vaka.sessions (namespace, updated, id)
    where not closed and (turn <> '' or inputs > 0);

create table vaka.events (
    namespace bytea not null,
    session bytea not null,
    seq bigint not null,
    body bytea not null,
    primary key (namespace, session, seq)
);

create table vaka.keys (
    namespace bytea not null,
    session bytea not null,
    key bytea not null, -- its SHA-256
    seq bigint not null,
    primary key (namespace, session, key)
);

create table vaka.decisions (
    namespace bytea not null,
    session bytea not null,
    id bytea not null, -- its SHA-256
    seq bigint not null, -- of the event that asked
    primary key (namespace, session, id)
);

create table vaka.snapshots (
    namespace bytea not null,
    session bytea not null,
    version bytea not null, -- its SHA-256
    seq bigint not null,
    body bytea not null,
    primary key (namespace, session, version, seq)
);

create table vaka.blobs (
    namespace bytea not null,
    digest bytea not null,
    body bytea not null,
    put timestamptz not null, -- the last time someone brought it
    primary key (namespace, digest)
);

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
    primary key (namespace, digest)
);

create index vals_by_key on vaka.vals (namespace, substring(key from 1 for 256));

-- Open blocks, for followers elsewhere. Lost in a crash, as they may be.
create unlogged table vaka.live_blocks (
    namespace bytea not null,
    session bytea not null,
    block bytea not null, -- SHA-256 of its name
    body bytea not null,
    valid_until timestamptz not null,
    primary key (namespace, session, block)
);

-- Append to many sessions at once. Request n is the n-th element of the arrays up to p_origin; the rows that go with it say
-- n in their first array. An owner means an append under a claim; none means an offer under p_key. p_base is the head
-- the request builds on: 0 makes the session. Nobody is held up: each request has its own answer.
--   ok      written
--   known   an offer with this key was written before, as event seq
--   moved   the head is not p_base
--   stale   the claim is over
--   gone    there is no such session to offer to
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

-- Whether a session has nothing left to do and has not changed since.
create function vaka.done(s vaka.sessions, p_before bytea) returns boolean language sql stable as $$
    select s.updated < p_before and s.turn = '' and s.inputs = 0 and s.pending = 0 and not exists (
        select from vaka.decisions d where d.namespace = s.namespace and d.session = s.id)
$$;

-- Forget sessions that no writer holds: one, or with p_before all that are done and have not changed since. Returns them,
-- each with the bytes its events had. With p_dry it only tells.
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
end
$$;
