"""What attempts leave: artifacts, the end of what they print, and what is found after a crash."""
