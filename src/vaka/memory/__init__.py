"""What agents and programs keep and find again: threads, their states and contexts, and processors of messages."""
