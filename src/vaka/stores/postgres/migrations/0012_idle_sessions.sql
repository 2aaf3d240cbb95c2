-- vaka.write_events as vaka.write was, and with requests that claim, write and release a session in one transaction.
-- Write to many sessions. A request is an object of p_requests; its head - base events are the next elements of p_bodies.
-- An owner means an append under a claim; none means an offer under a key. idle means an append to a session whose claim is
-- over, as its writer for this one transaction: term is one more than that of the session. base is the head the request
-- builds on: 0 makes the session. keys and asked are lists of [digest, seq], settled and blobs of digests; null in settled settles all
-- decisions. Each request has its own answer, in their order:
--   ok      written
--   known   an offer with this key was written before, as event r_seq
--   moved   the head is not base
--   stale   the claim is over
--   busy    an idle session has a writer
--   gone    there is no such session to offer to
create or replace function vaka.write_events(
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
