"""The log of a session: append, follow, fold, fork and rewind."""
