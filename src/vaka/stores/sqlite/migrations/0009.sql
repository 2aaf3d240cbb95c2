-- The seq of the event that lists what was erased; 0 if nothing was. The checksum covers it only if set.
alter table sessions add column erased integer not null default 0;
