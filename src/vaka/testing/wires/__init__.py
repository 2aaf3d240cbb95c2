"""An answer as the bytes of a provider's wire, one file for each. Pure; ``vaka.testing.fake_provider`` serves them."""
