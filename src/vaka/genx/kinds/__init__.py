"""Tools that definitions describe: HTTP requests, questions to a model, and sequences of tools, with jq in between."""
