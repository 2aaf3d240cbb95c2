"""A small model on this machine: what runs in its process, and how that process is kept."""
