"""What is said in chats, kept beside the logs of the runs that say it."""
