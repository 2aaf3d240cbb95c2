"""Patterns for names, paths and hosts; imports only the standard library."""
