"""What answers prompts: one wire API per file, and wrappers around a model."""
