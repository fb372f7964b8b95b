"""Onward's tests; a package, so that they can share code and be run as programs (`-m tests.crash.kill`)."""
