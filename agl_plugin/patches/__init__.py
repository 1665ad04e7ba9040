"""What this project changes in other packages."""
