"""Examples and exit codes of every command, for `--help` and `docs/commands.md`.

Begin with `page`. `running`, `looking`, `deciding` and `operating` have a page for every command, under the
headings of the help. `help` puts the text together.
"""
