"""Events of a session in the shapes of other systems. Pure: nothing here reads or writes."""
