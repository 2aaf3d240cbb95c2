"""The ports of the kernel: small protocols, each with a written contract."""
