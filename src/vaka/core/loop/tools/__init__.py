"""Tool calls: permission, approval, execution, recovery, results."""
