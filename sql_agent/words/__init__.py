"""What words mean, by dictionaries."""
