"""Who calls the server: API keys, JSON web tokens, tickets of WebSockets and the login of the console."""
