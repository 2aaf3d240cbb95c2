"""The agent loop: one turn, step by step, from the state of the log."""
