"""Credentials of callers: API keys, JSON web tokens, tickets of WebSockets and the login of the console."""
