"""S3-compatible store for tests: moto's server in this process, which verifies signatures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from moto.core.authorization import enable_iam_authentication
from moto.server import ThreadedMotoServer

NAME = "results"
_ALL = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}


@dataclass
class Store:
    """Running store with one bucket, and the key of a user who may use it."""

    server: ThreadedMotoServer
    endpoint: str
    access_key: str
    secret_key: str

    @property
    def client(self) -> Any:
        """Client with the user's key."""
        return self._client("s3")

    def _client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )

    def objects(self) -> dict[str, bytes]:
        """Return the content of all objects by key."""
        listed = self.client.list_objects_v2(Bucket=NAME).get("Contents", [])
        return {
            each["Key"]: self.client.get_object(Bucket=NAME, Key=each["Key"])["Body"].read()
            for each in listed
        }

    def write_settings(self, state: Path, **more: object) -> None:
        """Write `bucket.toml` into a state directory; `more` replaces or adds keys."""
        values = {
            "endpoint": self.endpoint,
            "bucket": NAME,
            "prefix": "testbed/",
            "access_key": self.access_key,
            "secret_key": self.secret_key,
            **more,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = state / "bucket.toml"
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n")


@contextmanager
def store() -> Iterator[Store]:
    """Serve a store on a free port of the loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    made = Store(server, f"http://{host}:{port}", "x", "x")
    try:
        iam = made._client("iam")
        iam.create_user(UserName="skyhop")
        iam.put_user_policy(UserName="skyhop", PolicyName="all", PolicyDocument=json.dumps(_ALL))
        key = iam.create_access_key(UserName="skyhop")["AccessKey"]
        made.access_key, made.secret_key = key["AccessKeyId"], key["SecretAccessKey"]
        with enable_iam_authentication():
            made.client.create_bucket(Bucket=NAME)
            yield made
    finally:
        server.stop()
