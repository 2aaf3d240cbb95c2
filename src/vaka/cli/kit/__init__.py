"""The parts that the commands of a feature share with the other commands of ``vaka``."""
