"""Settings and content from files and the environment, with the origin of each value."""
