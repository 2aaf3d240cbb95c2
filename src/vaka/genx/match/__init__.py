"""Rules that turn what a user writes into a rule name with arguments, with a model or without one."""
