"""The native API below ``/api/v1``: one file for each resource, and a table of its operations in each."""
