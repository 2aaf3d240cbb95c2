"""Grep and Glob: search files by content and by name."""
