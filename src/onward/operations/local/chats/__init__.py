"""What is said in chats, as it is asked for."""
