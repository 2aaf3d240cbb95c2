"""Access tokens for MCP servers, with the credentials of a program (OAuth 2.1, client credentials)."""

import warnings
from typing import Any

import httpx2
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp.shared.exceptions import MCPDeprecationWarning

from vaka.mcp.definition import McpServer


class _Tokens:
    """The access token of one connection, in memory."""

    def __init__(self) -> None:
        self._token: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._token

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._token = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep nothing: the client is given, not registered."""


def make_auth(server: McpServer) -> httpx2.Auth | None:
    """Return what gets an access token if the definition has credentials."""
    given = server.oauth
    if not given:
        return None
    scope, issuer = given.get("scope") or given.get("scopes"), given.get("issuer")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MCPDeprecationWarning)  # about a missing issuer, which the guide explains
        if "privateKey" in given:
            key = SignedJWTParameters(
                issuer=given["clientId"], subject=given["clientId"], signing_key=given["privateKey"],
                signing_algorithm=given.get("algorithm", "ES256"),
            )  # fmt: skip
            return PrivateKeyJWTOAuthProvider(
                server.url, _Tokens(), given["clientId"], key.create_assertion_provider(), scope, issuer
            )
        method: Any = given.get("tokenEndpointAuthMethod", "client_secret_basic")
        return ClientCredentialsOAuthProvider(
            server.url, _Tokens(), given["clientId"], given["clientSecret"], method, scope, issuer
        )
