"""Turns of a server that ``vaka serve`` runs, shown at this terminal."""
