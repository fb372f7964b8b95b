"""What is said in chats, in PostgreSQL. Begin with `messages`."""
