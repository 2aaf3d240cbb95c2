"""Models around a model: retries, limits, prices, tiers."""
