"""Tools that an agent may use. Begin with `port`: what does something for an agent is an AgentTool.

A ToolSource offers tools to steps; `toolbox` chooses from all sources those that a node allows, under the
project's settings. The loop in `agents/step` makes every use a recorded call, asks for approval first where
a tool needs it, and shows the model what came of it.

    files · commands · workspace     the built-in tools for files and commands, and the tree that they work in
    search_program                   the process behind the search tool
    web · web_addresses              the built-in tools for HTTP requests, and where a request may go
    functions                        functions of the user's program as tools
    mcp/                             tools of MCP servers
    schema                           the check of arguments and structured answers
"""
