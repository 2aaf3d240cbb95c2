"""The Model Context Protocol: servers whose tools, resources and prompts an agent uses."""

from vaka.mcp.definition import McpServer as McpServer

__all__ = ["McpServer"]
