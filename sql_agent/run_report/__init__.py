"""The parts of a run's report page; sql_agent/report.py is the command line."""
