"""Secrets out of texts, before anything is stored or printed.

What is found: the value of each known secret as it is, in base64 (at whatever place of what was encoded), in
a URL and inside JSON; and what looks like a secret by a table of well-known forms (`patterns`). A `Redactor`
has both. Text that comes in pieces goes through a stream, which holds back only what may be the beginning of
a secret: however the text was cut, the result is that of the whole.

Begin with `redactor`. Nothing here reads the environment or a file: `config` says which secrets there are.
"""
