"""What is said in chats. Begin with `saying`."""
