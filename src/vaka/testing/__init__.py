"""What tests of vaka, and of what others plug into it, are made of. Nothing shipped imports this."""
