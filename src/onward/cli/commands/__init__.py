"""One module per command or group of commands: flags, one call, printing."""
