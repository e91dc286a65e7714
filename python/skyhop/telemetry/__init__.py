"""What terminals measure: its columns, where it is kept, and who reads and brings it.

`fields` are the columns, each once; `store` keeps them, a file per node and day; `importers` read
what others published.
"""
