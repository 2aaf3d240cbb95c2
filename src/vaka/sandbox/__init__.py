"""What the operating system lets commands do."""
