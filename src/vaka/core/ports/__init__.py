"""The sockets the kernel offers: small protocols, each with a written contract."""
