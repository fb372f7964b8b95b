"""Rules about words: attributes, shapes and outcomes that are misspelt, misplaced or another program's.

A word that is merely unknown is left alone, because handlers read attributes of their own. A word that was
meant for Onward and has no effect is a warning, and an error if without it a gate would not hold.
"""
