"""The socket of a server."""

import socket

import pytest

from vaka.core.types.errors import ConfigError
from vaka.server.listen import open_socket


def test_a_connection_sends_small_answers_at_once() -> None:
    with open_socket("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(True)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_in_use_is_named() -> None:
    with open_socket("127.0.0.1", 0) as listener, pytest.raises(ConfigError, match="choose another --port"):
        open_socket(*listener.getsockname())
