"""What agents and programs keep and find again: threads, text, working and semantic memory."""
