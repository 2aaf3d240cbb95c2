"""What is read from files and the environment, with where each value came from."""
