"""Files of element sets for tests: Walker patterns with an epoch near the test's now."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

PLANES, SLOTS = 36, 22
MEAN_MOTION_REV_PER_DAY = 15.06


def walker_omm(
    *, age: timedelta = timedelta(0), ahead_s: float = 0.0, first_number: int = 1
) -> str:
    """Return a fleet as OMM in CSV whose epoch is `age` ago.

    Args:
        age: age of the elements.
        ahead_s: seconds by which the satellites are ahead on their orbits.
        first_number: the catalogue number of the first satellite.

    """
    epoch = datetime.now(UTC) - age
    # Rotate the planes with the Earth, so that the sky is the same whenever a test runs.
    days = (epoch - datetime(2000, 1, 1, 12, tzinfo=UTC)) / timedelta(days=1)
    sidereal_deg = 280.46 + 360.9856474 * days
    ahead_deg = ahead_s * MEAN_MOTION_REV_PER_DAY * 360 / 86_400
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        ["OBJECT_NAME", "EPOCH", "MEAN_MOTION", "ECCENTRICITY", "INCLINATION", "RA_OF_ASC_NODE",
         "ARG_OF_PERICENTER", "MEAN_ANOMALY", "NORAD_CAT_ID", "BSTAR"]
    )  # fmt: skip
    for number in range(PLANES * SLOTS):
        plane, slot = divmod(number, SLOTS)
        node_deg = (360 * plane / PLANES + sidereal_deg) % 360
        anomaly_deg = (360 * slot / SLOTS + 5 * plane + ahead_deg) % 360
        writer.writerow(
            [f"SAT {number}", epoch.strftime("%Y-%m-%dT%H:%M:%S.%f"), MEAN_MOTION_REV_PER_DAY,
             0.0001, 53.0, round(node_deg, 6), 0, round(anomaly_deg, 6), first_number + number, 0]
        )  # fmt: skip
    return text.getvalue()
