"""From Python types to JSON Schema: annotations, classes, signatures, docstrings and the provider dialects."""
