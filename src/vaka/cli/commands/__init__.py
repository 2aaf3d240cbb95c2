"""The click commands, one file for each group."""
