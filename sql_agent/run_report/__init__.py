"""The parts of a run's report page; commands/report.py is the command line."""
