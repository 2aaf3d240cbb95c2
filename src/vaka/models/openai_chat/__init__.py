"""OpenAI Chat Completions, and the vendors that speak it."""
