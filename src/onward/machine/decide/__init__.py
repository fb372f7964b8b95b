"""What requests do, under the run's lock: write events, nothing, or refuse.

Begin with `requests`. `resume` continues a stopped run, `owner_loss` is about a holder that died, `calls`
about the calls inside steps and what is in doubt.
"""
