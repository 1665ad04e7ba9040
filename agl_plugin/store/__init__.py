"""A store that lasts: agent-lightning's collections in an SQLite file, served with agent-lightning's own protocol."""
