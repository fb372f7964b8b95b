"""What is said in chats, in SQLite. Begin with `messages`."""
