"""The interfaces that the source documents describe, with their own paths and words.

They are adapters: every path calls an operation of the API under `/api`, and only the words differ.
Nothing is decided here. `statuses` has the words for each status; `agents` and
`agent_feed` have document 000's replies and socket, `generation` 002's, `dialect` 003's and `workflows`
004's. Those modules are pure: they convert replies of operations to replies of a document.
"""
