"""The engine: one turn, step by step, driven by what the log says."""
