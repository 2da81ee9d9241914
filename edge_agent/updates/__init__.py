"""Other models while the agent runs: switched between two frames, tried beside the champion, and told about."""
