"""What is said in chats, in memory. Begin with `messages`."""
