-- The head that the process which wrote it has made message rows up to. Processes of older versions may still have the file
-- open: they leave it as it is, and the triggers do for them what newer ones do themselves.
alter table sessions add column indexed integer not null default 0;

create trigger session_created_without_messages after insert on sessions when new.head > 0 and new.indexed = 0
begin insert or ignore into message_backlog values (new.namespace, new.session, 0); end;

create trigger session_grown_without_messages after update of head on sessions
when new.head > old.head and new.indexed = old.indexed
begin insert or ignore into message_backlog values (new.namespace, new.session, old.head); end;

-- A trigger cannot delete from message_words: words without a message are not found, and the next message with their number
-- replaces them.
create trigger session_deleted_with_messages after delete on sessions
when exists (select 1 from messages where namespace = old.namespace and session = old.session)
begin delete from messages where namespace = old.namespace and session = old.session
; update message_progress set indexed = min(indexed, (select ifnull(max(number), 0) from messages)); end;
