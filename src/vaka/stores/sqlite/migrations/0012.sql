-- Parts of the word index are merged a few pages at a time, with each batch of words: the merges that FTS5 makes by itself
-- take up to 30 milliseconds, for which all other work of the process waits.
insert into message_words (message_words, rank) values ('automerge', 0);
insert into message_words (message_words, rank) values ('usermerge', 16);
insert into message_words (message_words, rank) values ('crisismerge', 64);
