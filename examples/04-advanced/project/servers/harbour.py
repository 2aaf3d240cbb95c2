"""A server of tools on stdin and stdout."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("harbour", log_level="ERROR")


@server.tool()
def depth(place: str) -> str:
    """Measure the depth of the water."""
    return f"{place}: 11 m"


if __name__ == "__main__":
    server.run("stdio")
