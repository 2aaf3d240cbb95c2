"""Vendors and models as data: profiles, capabilities, prices and output limits."""
