"""What the tools touch: the database, behind a guard and in processes of its own."""
