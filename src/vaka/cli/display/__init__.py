"""What a terminal shows of a session, in `vaka run` and in `vaka chat`."""
