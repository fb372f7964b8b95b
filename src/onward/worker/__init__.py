"""Workers: processes that take runs whose time has come, drive them, and hand them back when they stop."""
