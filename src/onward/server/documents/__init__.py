"""The interfaces that the source documents describe, in their own paths and words.

They are adapters: every path asks operations that the API under `/api` asks too, and only the words differ.
Nothing is decided here. A word of a document is in the row of its status in `statuses`; `agents` and
`agent_feed` have document 000's replies and socket, `generation` 002's, `dialect` 003's and `workflows`
004's. Those modules are pure: replies of operations go in, replies of a document come out.
"""
