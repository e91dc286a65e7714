"""Database of the orchestrator in SQLite: its `tables`, and their opening."""
