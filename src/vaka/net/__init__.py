"""One connector for all outgoing requests: it resolves names, checks and pins addresses, and limits sizes."""
