"""The Agent2Agent protocol (A2A) 1.0 over HTTP: each agent is a remote agent that other agents find and call."""
