"""Tool calls in plain text, for models without function calling."""
