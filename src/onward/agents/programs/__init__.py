"""Programs as agents: Claude Code, Codex, Gemini CLI or your own command works on an agent's step.

One turn of a program is one recorded call. `handler` asks for turns until the step has a result, `turn`
runs one turn below a supervisor, `program` knows the programs (their settings, their command lines, and
what their failures mean), and `output` reads what they print: lines of JSON in, pieces of a turn out, pure.

A program keeps its conversation as a session of its own. Its id is recorded with the answer, and in the
stored conversation, so that a step that runs again, or a later step of the same thread, continues that
session. A session that the program no longer has is replaced by a new one, which begins with a summary of
the run.

A pipeline names programs and never spells out their commands: the project's settings say which command a
name means, with which flags and which variables. A pipeline may come from somebody else. A program holds a
key and follows what a model writes, so what it may do is for the person who runs it to say. And commands in
a pipeline have one door, `tool_command`, which can be closed.
"""
