"""The wire: messages and services between the tiers."""
