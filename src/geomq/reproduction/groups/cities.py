"""The city lists that brokers of a formation study stand in.

Owns which cities a list holds and in what order; a study takes the first so many. The list of the published
simulation cannot be shipped. It holds, beside large cities, the capitals of countries and provinces, which `regions`
imitates; the other lists show how much depends on that choice. A list of one's own is a CSV file.
"""

import csv
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from geomq.errors import DataError, UsageError
from geomq.workload.geonames import read_cities as read_known

BROKERS_MAX = 20_000
LISTS = {
    "regions": "the largest city of every first-level region (province, state), then the largest others",
    "largest": "the largest cities",
    "sample": "cities of 15,000 people or more, chosen by the seed",
}
_CSV_BYTES_MAX = 16 * 1024 * 1024
_CSV_NAMES = {"lat": ("lat", "latitude"), "lon": ("lng", "lon", "longitude"), "population": ("population",)}


class Cities(NamedTuple):
    """Places of brokers and how many people live there, which is how fit a broker is to lead."""

    lat: NDArray[np.float64]
    lon: NDArray[np.float64]
    population: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.lat)

    def take(self, chosen: NDArray[np.int64]) -> "Cities":
        return Cities(self.lat[chosen], self.lon[chosen], self.population[chosen])


def broker_cities(name: str, count: int, *, seed: int = 0) -> Cities:
    """The first `count` cities of a list, or of a CSV file."""
    if not 1 <= count <= BROKERS_MAX:
        raise UsageError(f"the number of brokers must be between 1 and {BROKERS_MAX}, not {count}")
    if name in LISTS:
        cities, order = _listed(name, seed if name == "sample" else 0)
    elif name.endswith(".csv"):
        cities = read_cities(Path(name))
        order = np.argsort(-cities.population, kind="stable")
    else:
        raise UsageError(f"no city list {name!r}; choose one of {', '.join(LISTS)}, or name a .csv file")
    if count > len(order):
        raise UsageError(f"the list {name} holds {len(order)} cities, fewer than {count}")
    return cities.take(np.sort(order[:count]))


@lru_cache(maxsize=1)
def _known() -> tuple[Cities, list[tuple[str, str]]]:
    """All cities of 15,000 people or more by falling population, and their regions."""
    lat, lon, population, regions = zip(*read_known(), strict=True)
    return Cities(np.array(lat), np.array(lon), np.array(population, dtype=np.float64)), list(regions)


@lru_cache(maxsize=8)
def _listed(name: str, seed: int) -> tuple[Cities, NDArray[np.int64]]:
    cities, regions = _known()
    if name == "largest":
        order = np.arange(len(cities))
    elif name == "sample":
        order = np.random.Generator(np.random.Philox(key=[seed, 0xC171])).permutation(len(cities))
    else:
        capitals = np.array(sorted({region: i for i, region in reversed(list(enumerate(regions)))}.values()))
        order = np.concatenate([capitals, np.setdiff1d(np.arange(len(cities)), capitals)])
    return cities, order


def read_cities(path: Path) -> Cities:
    """Cities from a CSV file with columns for latitude, longitude and population; lines without people are passed."""
    try:
        if path.stat().st_size > _CSV_BYTES_MAX:
            raise DataError(f"{path} is larger than {_CSV_BYTES_MAX} bytes")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text") from None
    reader = csv.DictReader(lines)
    columns = {}
    for column, names in _CSV_NAMES.items():
        found = [name for name in names if name in (reader.fieldnames or ())]
        if not found:
            raise DataError(f"{path} has no column {' or '.join(names)}")
        columns[column] = found[0]
    try:
        rows = [_numbers(row, columns, path, number) for number, row in enumerate(reader, 2)]
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}") from None
    kept = dict.fromkeys(row for row in rows if row is not None)
    if not kept:
        raise DataError(f"{path} lists no city with a population")
    lat, lon, population = zip(*kept, strict=True)
    return Cities(np.array(lat), np.array(lon), np.array(population))


def _numbers(
    row: dict[str, str | None], columns: dict[str, str], path: Path, number: int
) -> tuple[float, float, float] | None:
    try:
        lat, lon = float(row[columns["lat"]] or ""), float(row[columns["lon"]] or "")
        population = float(row[columns["population"]] or 0)
    except ValueError:
        raise DataError(f"{path} line {number}: latitude, longitude and population must be numbers") from None
    if not (-90 <= lat <= 90 and -180 <= lon <= 180 and math.isfinite(population)):
        raise DataError(f"{path} line {number}: {lat:g},{lon:g} with {population:g} people is not a city on earth")
    return (lat, lon, population) if population > 0 else None
