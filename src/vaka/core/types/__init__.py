"""The words vaka speaks in: immutable values, no I/O."""
