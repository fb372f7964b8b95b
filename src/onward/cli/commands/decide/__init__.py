"""Commands that decide about a run: answer, retry, skip, abort, pause, cancel, dismiss, steer."""
