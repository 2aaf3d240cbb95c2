"""Limits of a turn, reservations of running calls, and checks before money is spent."""
