"""Chats: what a user's message does to the runs of its chat.

A message is stored with what it asks for before anything happens (`dispatch`). What follows is one pure
function of the chat's runs and the message (`decide`), and a thin shell does it (`dispatch`, with `runs`).
`intent` reads what a message wants; `settings` has the table of the settings' file.

Everything the shell does is idempotent under the message: the id of a new run derives from that of the
message, requests to runs have the message as their key and name the head that was looked at, and a run is
started only in the turn of the chat that was seen. So any process may take up any message at any time: the
sender does so at once, and workers for a sender that died.
"""
