"""The names of the tools that Onward itself offers to agents."""

from __future__ import annotations

READ, WRITE, EDIT, LIST, SEARCH, SHELL = "read", "write", "edit", "list", "search", "shell"
HTTP_GET, HTTP_SEND = "http_get", "http_send"
BUILT_IN_TOOLS = (READ, WRITE, EDIT, LIST, SEARCH, SHELL, HTTP_GET, HTTP_SEND)
