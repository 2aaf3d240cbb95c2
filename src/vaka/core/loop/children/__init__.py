"""What runs inside a turn beside its own steps: subagents, scripts and D-Mail."""
