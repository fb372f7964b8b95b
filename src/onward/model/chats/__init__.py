"""What is said in chats, and stored while it grows."""
