-- Processes of older versions may still be connected: they call vaka.write, which is now for them alone. The sessions that
-- they write get their message rows when those are needed.
alter function vaka.write(json, bytea[], double precision) rename to write_events;

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

create or replace function vaka.write_messages(
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
