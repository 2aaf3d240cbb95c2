"""One turn on the command line: input, signals, approvals, output."""
