"""HTTP, server-sent events and provider errors."""
