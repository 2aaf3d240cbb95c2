"""Work inside a turn beside the steps of its agent: subagents, scripts and D-Mail."""
