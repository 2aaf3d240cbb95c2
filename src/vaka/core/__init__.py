"""The kernel: words, sockets, the log and the loop, on the standard library and msgspec alone."""
