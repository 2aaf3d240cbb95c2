"""The command line: parse, call the runtime, write what comes back."""
