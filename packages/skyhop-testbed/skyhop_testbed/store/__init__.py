"""The orchestrator's database in SQLite or PostgreSQL: `tables` and their `migrations`."""
