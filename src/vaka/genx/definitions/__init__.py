"""Definitions of agents, tools, rules, contexts and generators: plain data, read from YAML, JSON and MessagePack."""
