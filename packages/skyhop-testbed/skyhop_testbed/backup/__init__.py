"""Backups of an orchestrator's state directory: `manifest` is their form, `writing`, `restoring`.

A backup is a directory or a tar file with the files of the state directory and a list of them with
sizes and digests. The list comes last, and the backup gets its name when it is complete and was
read again: an unfinished backup never has the name.
"""
