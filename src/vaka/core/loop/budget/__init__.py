"""Limits of a turn, reservations of running model calls, and budget checks."""
