"""The tools of agents: what they do, and what nobody can make them do."""
