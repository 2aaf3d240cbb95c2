"""Serve agents over HTTP: the native API, WebSocket, the protocols of other clients, and the console."""
