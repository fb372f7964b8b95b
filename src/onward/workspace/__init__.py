"""Git work trees, where the steps of a run change files. Begin with `port`; `trees` implements it.

Nothing here touches a person's own files: a run has its own work tree and git branch, and uncommitted files
are recorded through a separate index. Only `restore` of an in-place run moves the person's own HEAD, because
that was asked for, and it first saves what it replaces.
"""
