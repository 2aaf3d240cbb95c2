"""Text in files: encodings and line endings; imports only the standard library."""
