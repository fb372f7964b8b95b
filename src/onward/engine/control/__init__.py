"""What people and programs ask of runs: start, resume, answer, fork, forget. Begin with `start`.

What each request does is decided in `machine/decide/`; here it is checked, sent and followed up.
"""
