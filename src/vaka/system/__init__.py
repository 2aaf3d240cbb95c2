"""Linux system calls that Python lacks; imports only the standard library, so that the warden can load it."""
