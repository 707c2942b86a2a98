"""An MCP server for tests: one tool that adds, one that reads a file, one that connects."""

from __future__ import annotations

import socket
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("helper")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def read(path: str) -> str:
    """Return a file's text, or how that was refused."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        return type(error).__name__


@server.tool()
def connect(port: int) -> str:
    """Connect to this machine, or say how that was refused."""
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except OSError as error:
        return type(error).__name__
    return "connected"


if __name__ == "__main__":
    server.run(sys.argv[1])  # type: ignore[call-overload] # the name of a transport
