"""From a database to an agent for it: its schema, questions with reference SQL, a recipe, a tiny policy."""
