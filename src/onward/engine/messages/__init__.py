"""Text on its way into messages, and what becomes of it afterwards. Begin with `flusher`."""
