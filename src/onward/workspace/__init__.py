"""Work trees: where the steps of a run change files, as git knows them.

Nothing here touches what a person works with: a run has a work tree and a branch of its own, and what is not
committed is recorded through an index of our own. Only `restore` of an in-place run moves the person's own
HEAD, because that is what was asked for, and it saves what it would lose.
"""
