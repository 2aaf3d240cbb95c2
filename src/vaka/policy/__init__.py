"""Who may do what: rules, and what happens when none matches."""
