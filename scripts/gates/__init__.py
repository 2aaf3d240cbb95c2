"""Gates: rules of this repository that no linter knows."""
