"""Programs as agents, played by a stand-in: the real ones are never started."""
