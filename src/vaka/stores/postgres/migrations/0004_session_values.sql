-- vaka.forget as before, and with the values of the sessions: those whose key begins with 'session/', the length of the
-- session's name in bytes, '/', the name and '/'.
create or replace function vaka.forget(
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
