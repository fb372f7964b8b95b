"""Calls inside steps as they are shown: `listed.py` one by one, `progress.py` those of an open step."""
