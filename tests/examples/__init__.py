"""The examples, as programs and as files."""
