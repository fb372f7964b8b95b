"""What people and programs ask of runs: resume, answer, fork, forget. The requests are in `requests`."""
