"""The command line as people and scripts meet it: real processes, real terminals, real signals."""
