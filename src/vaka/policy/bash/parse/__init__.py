"""Read the text of a command into simple commands, as bash would."""
