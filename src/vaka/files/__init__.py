"""Trees of files: on disk, in memory, in a key-value store, or several as one."""
