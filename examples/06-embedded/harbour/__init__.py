"""An application that brings its own content for agents."""
