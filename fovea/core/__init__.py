"""The shared language of all tiers: pure values and pure functions, numpy only."""
