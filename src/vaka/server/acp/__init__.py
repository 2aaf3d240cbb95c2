"""The Agent Client Protocol on lines of JSON: the agent that an editor starts."""
