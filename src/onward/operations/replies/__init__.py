"""What is answered: plain JSON values under stable names. `onward … --json` prints these.

- `runs`: a run as it stands, in lists or in full, its gates, and what came of a decision. Begin here.
- `steps`: what happened in a run: its steps, calls, artifacts, events, and its picture.
- `chats`: messages, and chats with their runs.
- `database`: what concerns more than one run: numbers, workers, limits, pipelines, notifications.
"""
