"""Tools that an agent may use. Begin with `port`: whatever does something for an agent is an AgentTool.

A ToolSource offers tools to steps; `toolbox` chooses from all sources those that a node allows. The loop in
`agents/step` makes every use a recorded call, asks for approval first where a tool needs it, and shows the
model what came of it. The built-in tools are in `workspace/` (files and commands) and `web/` (requests);
`settings` is what a project says about tools.
"""
