"""Python code that a model wrote, run where it can do nothing but compute.

rules.py    what the code may say: an allow list of syntax, names, attributes and modules
kernel.py   what its process may do: a filter of system calls, and limits of time and memory
worker.py   the process that forks one confined child per run
pool.py     `Sandbox`, what the rest of the project uses
"""
