"""The store in one SQLite file, for one machine. Who is alive on it is told by file locks (`presence`)."""
