"""The parts that the routes of a feature share with the other routes of the server."""
