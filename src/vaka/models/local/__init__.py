"""A small model on this machine: llama.cpp's server in a process of its own."""
