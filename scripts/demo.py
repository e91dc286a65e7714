"""The main job: San Diego to New York over Starlink, CUBIC then BBR on the real TCP stack."""

from __future__ import annotations

import sys
from pathlib import Path

from skyhop.cli.terminal import print_comparison, print_error, print_note, progress_bar
from skyhop.engines import Observer, live
from skyhop.errors import SkyhopError
from skyhop.report import summary_rows, write_report

ROOT = Path(__file__).resolve().parent.parent
SCENARIO = ROOT / "examples" / "san-diego-new-york.toml"
DEMO = ROOT / "runs" / "demo"
CONGESTION_CONTROLS = ("cubic", "bbr")


def main() -> int:
    """Run the demo and print its table and the report's path."""
    directories = []
    try:
        for cc in CONGESTION_CONTROLS:
            directory = DEMO / cc
            print_note(f"demo: {cc} from San Diego to New York, live for 60 s")
            with progress_bar("computing the path") as path, progress_bar(f"running {cc}") as run:
                live(
                    SCENARIO,
                    directory,
                    sets=[f"flow.0.cc={cc}"],
                    force=True,
                    observer=Observer(path, run),
                )
            directories.append(directory)
        report = write_report(directories, DEMO / "report.html")
    except SkyhopError as error:
        print_error(str(error))
        return 1
    print_comparison(summary_rows(directories), as_json=False)
    print(f"report: {report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
