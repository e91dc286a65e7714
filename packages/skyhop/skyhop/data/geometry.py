"""Geometry of places and satellites: WGS84, metres and degrees."""

from __future__ import annotations

import math

import numpy as np

from skyhop.data.arrays import FloatArray

LIGHT_M_PER_S = 299_792_458.0

_EQUATORIAL_RADIUS_M = 6_378_137.0
_FLATTENING = 1 / 298.257223563
_ECCENTRICITY_SQUARED = _FLATTENING * (2 - _FLATTENING)
# Mean radius of the earth (IUGG), for distances along the surface.
_MEAN_RADIUS_M = 6_371_008.8


def great_circle_m(from_deg: tuple[float, float], to_deg: tuple[float, float]) -> float:
    """Return the great-circle distance in m between two (latitude, longitude) in degrees."""
    (lat_a, lon_a), (lat_b, lon_b) = (map(math.radians, place) for place in (from_deg, to_deg))
    haversine = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * _MEAN_RADIUS_M * math.asin(math.sqrt(min(haversine, 1.0)))


def earth_fixed_m(latitude_deg: float, longitude_deg: float, altitude_m: float = 0) -> FloatArray:
    """Return the earth-fixed position of a place in m, shape (3,)."""
    lat, lon = math.radians(latitude_deg), math.radians(longitude_deg)
    normal = _EQUATORIAL_RADIUS_M / math.sqrt(1 - _ECCENTRICITY_SQUARED * math.sin(lat) ** 2)
    axial = (normal + altitude_m) * math.cos(lat)
    height = (normal * (1 - _ECCENTRICITY_SQUARED) + altitude_m) * math.sin(lat)
    return np.array([axial * math.cos(lon), axial * math.sin(lon), height])


def ground_points_deg(positions_m: FloatArray) -> FloatArray:
    """Return latitude and longitude in degrees (n, 2) of the ground below positions (n, 3) in m.

    Latitudes are geocentric. They differ from geodetic ones by less than 0.2 degrees, which is not
    visible on a map.
    """
    x, y, z = positions_m.T
    return np.asarray(
        np.degrees(np.column_stack((np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x))))
    )


def geodetic(positions_m: FloatArray) -> FloatArray:
    """Return latitude and longitude (deg) and altitude above WGS84 (m) of positions (n, 3) in m."""
    x, y, z = positions_m.T
    axial = np.hypot(x, y)
    latitude = np.arctan2(z, axial * (1 - _ECCENTRICITY_SQUARED))
    altitude = np.zeros_like(latitude)
    # Each step makes the error about 150 times as small: three leave less than a millimetre.
    for _ in range(4):
        normal = _EQUATORIAL_RADIUS_M / np.sqrt(1 - _ECCENTRICITY_SQUARED * np.sin(latitude) ** 2)
        altitude = axial * np.cos(latitude) + z * np.sin(latitude)
        altitude -= _EQUATORIAL_RADIUS_M**2 / normal
        share = normal / (normal + altitude)
        latitude = np.arctan2(z, axial * (1 - _ECCENTRICITY_SQUARED * share))
    return np.column_stack((np.degrees(latitude), np.degrees(np.arctan2(y, x)), altitude))


def seen_from(
    latitude_deg: float, longitude_deg: float, positions_m: FloatArray, altitude_m: float = 0
) -> tuple[FloatArray, FloatArray]:
    """Return elevation and azimuth (from north, clockwise) in degrees of positions (n, 3) in m."""
    lat, lon = math.radians(latitude_deg), math.radians(longitude_deg)
    up = np.array([math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)])
    east = np.array([-math.sin(lon), math.cos(lon), 0.0])
    north = np.cross(up, east)
    sight = positions_m - earth_fixed_m(latitude_deg, longitude_deg, altitude_m)
    sight = sight / np.linalg.norm(sight, axis=1, keepdims=True)
    elevation = np.degrees(np.arcsin(np.clip(sight @ up, -1, 1)))
    azimuth = np.degrees(np.arctan2(sight @ east, sight @ north)) % 360
    return elevation, azimuth
