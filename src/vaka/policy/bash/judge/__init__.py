"""Judge the simple commands of a script: rules, guard, file access."""
