"""What is known of vendors and models: profiles, capabilities, prices. Data."""
