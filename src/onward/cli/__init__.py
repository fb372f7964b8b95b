"""The command line: thin. It asks the engine, prints what it says, and turns it into an exit code.

`main` knows every command by name only and imports a command's file when it is called, so that looking at
runs never waits for what runs them. Each file is one concern:

- `options`, `values`, `opening`: what was asked for, and the database and app it is asked of
- `run`, `resume`, `preview`, `replay`, `answer`, `operate`: commands about runs; `foreground` drives one
- `status`, `listing`, `watch`, `inspect`, `check`, `about`: commands that only look
- `graph`: draws, and `picture` says where to
- `narrate`, `progress`, `live`, `render`, `text`, `output`: what is printed
- `prompt`, `signals`: what a person does meanwhile
- `exits`, `failure`: how it ends
"""
