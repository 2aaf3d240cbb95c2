"""What the commands of a feature share with those of ``vaka``."""
