"""Build messages from events and streams, store their large parts, and convert results of tools."""
