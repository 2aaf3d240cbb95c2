"""The process that starts commands and sees to it that nothing outlives them; it knows the standard library only."""
