"""Bytes kept per user and per node, counted by triggers of the database.

The sum over all files of a user would read a million rows at each upload. Triggers on the table
`artefact` keep it in the table `usage`, in the transaction that stores or deletes a file, whichever
code does so.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

KEPT_BYTES = "kept_bytes"
"""Value of `usage.what` for the bytes of published files; its `day` is 0."""
UPLOADED_BYTES = "uploaded_bytes"
"""Value of `usage.what` for the bytes received on a day, which `usage.day` numbers from 1970."""

_OWNERS = """
SELECT 'user' AS kind, job.owner AS name FROM run JOIN job ON job.id = run.job
    WHERE run.id = {row}.run
UNION ALL SELECT 'node', CASE {row}.side WHEN 'client' THEN run.client ELSE run.server END FROM run
    WHERE run.id = {row}.run
"""
_TRIGGERS = {
    "usage_of_stored": f"""AFTER INSERT ON artefact BEGIN
        INSERT INTO usage (kind, name, what, day, amount)
            SELECT kind, name, '{KEPT_BYTES}', 0, NEW.size FROM ({_OWNERS.format(row="NEW")})
            WHERE name IS NOT NULL
            ON CONFLICT (kind, name, what, day) DO UPDATE SET amount = amount + excluded.amount;
        END""",
    "usage_of_deleted": f"""AFTER DELETE ON artefact BEGIN
        UPDATE usage SET amount = amount - OLD.size WHERE what = '{KEPT_BYTES}'
            AND (kind, name) IN ({_OWNERS.format(row="OLD")});
        END""",
}
_SUMS = f"""
INSERT INTO usage (kind, name, what, day, amount)
SELECT 'user', job.owner, '{KEPT_BYTES}', 0, sum(artefact.size)
    FROM artefact JOIN run ON run.id = artefact.run JOIN job ON job.id = run.job GROUP BY job.owner
UNION ALL
SELECT 'node', CASE artefact.side WHEN 'client' THEN run.client ELSE run.server END AS host,
    '{KEPT_BYTES}', 0, sum(artefact.size)
    FROM artefact JOIN run ON run.id = artefact.run GROUP BY host HAVING host IS NOT NULL
"""


def count_from_now_on(connection: Connection) -> None:
    """Create the triggers, and count the files that are already stored."""
    connection.exec_driver_sql(f"DELETE FROM usage WHERE what = '{KEPT_BYTES}'")
    connection.exec_driver_sql(_SUMS)
    for name, body in _TRIGGERS.items():
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(f"CREATE TRIGGER {name} {body}")
