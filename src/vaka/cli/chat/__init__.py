"""``vaka chat``: a conversation at the terminal."""
