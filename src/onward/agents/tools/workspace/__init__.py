"""The tools that work with files and commands in a step's workspace. Begin with `paths` and `tree`.

    arguments ──► parts_of (a path inside, or refused) ──► Tree (name by name, through no link) ──► answer

What the model writes is untrusted, and so is the workspace: a command of the same agent may exchange a
directory for a link while another tool is on its way through it. So no path is ever handed to the system as a
whole: every name is opened in the directory before it, and a link is refused wherever it stands.
"""
