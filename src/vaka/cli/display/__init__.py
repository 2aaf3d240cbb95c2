"""The display of a session in a terminal, for `vaka run` and `vaka chat`."""
