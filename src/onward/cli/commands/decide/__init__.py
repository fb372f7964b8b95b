"""Commands by which a person decides about a run: answer, retry, skip, abort, pause, cancel, dismiss, steer."""
