"""The rules that a pipeline is checked by.

Begin with `check`, which lists them. `rule` says what a rule is and what it finds. The others have the
rules: `structure` how nodes and edges are connected, `attributes` what their values may be, `steps` what
single steps do, `words` names that are misspelt, misplaced or another program's.
"""
