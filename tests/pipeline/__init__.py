"""Text in, an immutable graph out. A name such as "D5" in a test is a row of the dialect's table."""
