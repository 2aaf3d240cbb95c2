"""The only place that knows every part: it puts them together and owns what runs."""
