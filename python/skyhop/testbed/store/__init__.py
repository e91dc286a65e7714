"""The orchestrator's state in SQLite or PostgreSQL: its `tables`, and their `migrations`."""
