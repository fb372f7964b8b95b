"""What people and programs ask of runs: start, resume, answer, fork, forget. Begin with `start`.

`requests` has what is asked, as values. `create` makes new runs and leaves them in the queue; `start` also
executes them, resumes and forks. `intervene` answers gates, pauses, cancels and steers; `limits` changes
limits; `retention` deletes. What each request does is decided in `machine/`; here it is checked, sent and
followed up.
"""
