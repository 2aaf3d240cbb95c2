"""One vetted connector for everything that dials out: resolve, judge, pin, judge again, cap."""
