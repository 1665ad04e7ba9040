"""What every room may use: files, processes, the console, the environment, and errors for people."""
