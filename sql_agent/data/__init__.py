"""The bundled medical database and questions, and the command that makes them: `python -m sql_agent.data.build`."""
