"""The WebSocket ``/api/v1/ws``, subprotocol ``agent.v1+json``."""
