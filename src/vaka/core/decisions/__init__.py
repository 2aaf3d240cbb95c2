"""Decisions of people: approvals of calls, answers to questions, outcomes of lost calls."""
