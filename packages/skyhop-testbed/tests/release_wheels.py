"""Small wheels of skyhop and skyhop-testbed for tests of releases, and their signatures."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

from skyhop_testbed import launcher
from skyhop_testbed.releases import FILE, make_key, sign

ANY = "py3-none-any"
_PROTOCOL = "OLDEST, PROTOCOL = 1, 2\n"


def write_wheel(
    place: Path,
    project: str,
    version: str,
    files: dict[str, str],
    *,
    tag: str = ANY,
    about: str = "",
    command: str = "",
) -> Path:
    """Write a wheel that pip can install; return its file.

    Args:
        place: directory of the wheel.
        project: name of the project, with underscores.
        version: its version.
        files: texts of its files by their paths.
        tag: its tags of Python and platform.
        about: further lines of its metadata.
        command: entry point of the command `skyhop`, such as "module:function"; "" for none.
    """
    info = f"{project}-{version}.dist-info"
    made = place / f"{project}-{version}-{tag}.whl"
    head = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    with zipfile.ZipFile(made, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/METADATA", head + about)
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: test\nTag: {tag}\n")
        if command:
            text = f"[console_scripts]\nskyhop={command}\n"
            wheel.writestr(f"{info}/entry_points.txt", text)
        wheel.writestr(f"{info}/RECORD", "")
    return made


def write_wheels(
    place: Path,
    version: str,
    *,
    code: str = "",
    protocol: str = _PROTOCOL,
    about: str = "Requires-Python: >=3.11\n",
    tag: str = ANY,
) -> Path:
    """Write both wheels of a version into a new directory; return the directory.

    Args:
        place: the directory; an earlier one is removed.
        version: the version.
        code: module with the function `main`, the command `skyhop`.
        protocol: text of `protocol.py`.
        about: further lines of the metadata of skyhop-testbed.
        tag: tags of the wheel of skyhop.
    """
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    write_wheel(
        place, "skyhop", version, {"skyhop_fake.py": code}, tag=tag, command="skyhop_fake:main"
    )
    files = {
        "skyhop_testbed/__init__.py": "",
        "skyhop_testbed/protocol.py": protocol,
        "skyhop_testbed/launcher.py": Path(launcher.__file__).read_text("utf-8"),
    }
    write_wheel(place, "skyhop_testbed", version, files, about=about)
    return place


class Signer:
    """Keys of a release's signer, and directories of signed releases.

    Args:
        place: directory of all files.
        name: name of the key.
    """

    def __init__(self, place: Path, name: str = "release") -> None:
        self.file = place / f"{name}.key"
        self.public = make_key(self.file)
        self._place = place

    def release(self, version: str, **others: str) -> Path:
        """Write and sign the wheels of a version; return their directory."""
        made = write_wheels(self._place / f"wheels-{version}", version, **others)
        sign(made, self.file)
        return made


def contents(directory: Path) -> dict[str, bytes]:
    """Return the files of a signed release by their names."""
    names = [FILE, *(each.name for each in directory.glob("*.whl"))]
    return {name: (directory / name).read_bytes() for name in names}
