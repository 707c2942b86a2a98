"""An MCP server: one tool, over HTTP on this machine."""

from __future__ import annotations

import logging
import socket

import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("adder")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    logging.getLogger("mcp").setLevel(logging.ERROR)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run([listener])
