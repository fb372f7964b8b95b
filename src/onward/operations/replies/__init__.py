"""What is answered: plain JSON values under stable names. `onward … --json` prints these.

Begin with `runs` and `pages`: each module has the replies about one subject.
"""
