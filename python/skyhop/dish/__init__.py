"""A satellite terminal: one that is read, and one that is emulated for tests and demonstrations."""
