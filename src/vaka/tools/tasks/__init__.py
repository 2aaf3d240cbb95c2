"""The task board of a session: tasks, and which of them wait for which."""
