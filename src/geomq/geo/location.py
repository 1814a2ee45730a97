"""Locations: a WGS84 latitude and longitude in degrees, and their text.

Owns range checks and the two spellings a client may send: `lat,lon` and an RFC 5870 geo URI. Altitude and
uncertainty are read and dropped. Refuses every coordinate reference system but WGS84.
"""

import math
import re
from decimal import Decimal
from typing import NamedTuple

from geomq.errors import GeometryError

TEXT_MAX = 2_048
NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"

_PLAIN = re.compile(rf"({NUMBER})\s*,\s*({NUMBER})")
_COORDINATES = re.compile(rf"({NUMBER}),({NUMBER})(?:,({NUMBER}))?")
_PARAMETER = re.compile(r"([A-Za-z0-9-]+)(?:=([A-Za-z0-9\[\]:&+$\-_.!~*'()%]+))?")


class Location(NamedTuple):
    """A place on the earth, WGS84 degrees."""

    lat: float
    lon: float


class GeoUri(NamedTuple):
    """What a geo URI says: a location and, if given, its uncertainty `u` in metres."""

    location: Location
    uncertainty_m: float | None


def make_location(lat: float, lon: float) -> Location:
    """Return the location if both numbers are finite and in range, else raise GeometryError."""
    try:
        lat, lon = float(lat), float(lon)
    except (TypeError, ValueError, OverflowError):
        raise GeometryError("latitude and longitude must be numbers") from None
    if not -90.0 <= lat <= 90.0:
        raise GeometryError(f"latitude {lat!r} is not between -90 and 90")
    if not -180.0 <= lon <= 180.0:
        raise GeometryError(f"longitude {lon!r} is not between -180 and 180")
    return Location(lat, lon)


def parse_location(text: str) -> Location:
    """Read `lat,lon` or a geo URI."""
    if len(text) > TEXT_MAX:
        raise GeometryError(f"location text is longer than {TEXT_MAX} characters")
    stripped = text.strip()
    if is_geo_uri(stripped):
        return parse_geo_uri(stripped).location
    match = _PLAIN.fullmatch(stripped)
    if match is None:
        raise GeometryError(f"location {text[:80]!r} is neither 'lat,lon' nor a geo URI")
    return make_location(float(match[1]), float(match[2]))


def location_text(location: Location) -> str:
    """Write `lat,lon` so that `parse_location` gives back exactly these floats."""
    return f"{decimal_text(location.lat)},{decimal_text(location.lon)}"


def is_geo_uri(text: str) -> bool:
    return text[:4].lower() == "geo:"


def parse_geo_uri(text: str) -> GeoUri:
    """Read `geo:lat,lon[,alt][;crs=wgs84][;u=metres]`; other parameters are allowed and mean nothing here."""
    if len(text) > TEXT_MAX:
        raise GeometryError(f"geo URI is longer than {TEXT_MAX} characters")
    coordinates, *parameters = text[4:].split(";")
    match = _COORDINATES.fullmatch(coordinates)
    if match is None:
        raise GeometryError(f"geo URI {text[:80]!r} is not of the form geo:lat,lon")
    if match[3] is not None and not math.isfinite(float(match[3])):
        raise GeometryError("the altitude of the geo URI is not finite")
    uncertainty_m = _read_parameters(parameters)
    return GeoUri(make_location(float(match[1]), float(match[2])), uncertainty_m)


def decimal_text(number: float) -> str:
    """The shortest text of `number` that reads back the same, without an exponent (RFC 5870 knows none)."""
    text = repr(float(number))
    return format(Decimal(text), "f") if "e" in text else text


def _read_parameters(parameters: list[str]) -> float | None:
    uncertainty_m: float | None = None
    seen: set[str] = set()
    for parameter in parameters:
        match = _PARAMETER.fullmatch(parameter)
        if match is None:
            raise GeometryError(f"geo URI parameter {parameter[:40]!r} is not name=value")
        name = match[1].lower()
        if name in seen:
            raise GeometryError(f"geo URI parameter {name!r} is given twice")
        seen.add(name)
        if name == "crs" and (match[2] or "").lower() != "wgs84":
            raise GeometryError(f"coordinate reference system {match[2] or ''!r} is not supported; only wgs84 is")
        if name == "u":
            uncertainty_m = _read_uncertainty(match[2] or "")
    return uncertainty_m


def _read_uncertainty(text: str) -> float:
    if re.fullmatch(NUMBER, text) is None:
        raise GeometryError(f"u={text[:40]!r} is not a number of metres")
    metres = float(text)
    if not 0.0 <= metres < math.inf:
        raise GeometryError(f"u={text[:40]} must be a finite number of metres, zero or more")
    return metres
