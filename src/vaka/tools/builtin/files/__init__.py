"""The file tools: Read, Write, Edit, MultiEdit and NotebookEdit."""
