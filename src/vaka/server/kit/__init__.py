"""What the routes of a feature share with those of the server."""
