"""`skyhop testbed bucket`: check of the bucket to which an orchestrator moves files of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bucket(
    state: Annotated[
        Path, typer.Option("--state", metavar="DIR", help="State directory with bucket.toml.")
    ] = Path("testbed"),
) -> None:
    """Write, read and delete an object, with the settings of DIR/bucket.toml.

    Example: skyhop testbed bucket --state /var/lib/skyhop-testbed
    """
    from skyhop.errors import InputError
    from skyhop_testbed.orchestrator.bucket import FILE, Bucket, read_bucket_settings

    file = state / FILE
    settings = read_bucket_settings(file)
    if settings is None:
        raise InputError(f"{file}: does not exist; skyhop docs testbed/operate describes it")
    Bucket(settings).check()
    where = settings.endpoint or "Amazon S3"
    print(f"{settings.bucket} at {where}: an object was written, read and deleted")
