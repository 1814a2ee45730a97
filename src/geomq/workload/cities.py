"""Where brokers stand: the published places, large cities of the world, or a file of one's own.

Owns the choice and order of broker places. Refuses to know anything about areas, latencies or clients: that is
`world`. The same seed always gives the same places in the same order.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from geomq.errors import DataError, UsageError
from geomq.workload.geonames import read_large

BROKERS_MAX = 4096
_CSV_BYTES_MAX = 4 * 1024 * 1024
_CSV_COLUMNS = ("name", "latitude", "longitude", "population")


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's name, where it stands in degrees, and how many people it serves."""

    name: str
    lat: float
    lon: float
    population: int


# The 25 broker places of the published simulation in their order of selection, which is also the order of the
# grid quorum. The places are published, the populations are not: these are approximate metropolitan figures, taken
# because with them the greedy choice of leaders gives the published broadcast groups. Latencies depend on them; the
# page on the reproduction of DisGB says how much.
PUBLISHED = tuple(
    Place(name, lat, lon, thousands * 1000)
    for name, lat, lon, thousands in (
        ("Nanjing", 32.05, 118.78, 3679),
        ("Brooklyn", 40.6501, -73.9496, 2629),
        ("Kiev", 50.4334, 30.5166, 2709),
        ("Barranquilla", 10.96, -74.8, 1798),
        ("Haora", 22.5804, 88.3299, 4842),
        ("Makkah", 21.43, 39.82, 1385),
        ("Yulin", 22.63, 110.15, 1060),
        ("Cali", 3.4, -76.5, 2254),
        ("Munich", 48.1299, 11.575, 1275),
        ("Chifeng", 42.27, 118.95, 1148),
        ("Conakry", 9.5315, -13.6802, 1494),
        ("Guayaquil", -2.22, -79.92, 2514),
        ("Daqing", 46.58, 125.0, 1594),
        ("Pyongyang", 39.0194, 125.7547, 3300),
        ("Isfahan", 32.7, 51.7, 1547),
        ("Riverside", 33.9381, -117.3948, 2108),
        ("Asuncion", -25.2964, -57.6415, 1870),
        ("Tel Aviv-Yafo", 32.08, 34.77, 3112),
        ("Natal", -5.78, -35.24, 1035),
        ("San Jose", 9.935, -84.0841, 1284),
        ("Luanda", -8.8383, 13.2344, 5173),
        ("Vancouver", 49.2734, -123.1216, 2313),
        ("Athens", 37.9833, 23.7333, 3242),
        ("Denver", 39.7621, -104.8759, 2876),
        ("Calgary", 51.083, -114.08, 1110),
    )
)


def large_cities() -> list[Place]:
    """All cities with a million people or more, one per location, in a fixed order."""
    return [Place(*city) for city in read_large()]


def choose_cities(count: int, *, field_deg: float, seed: int) -> list[Place]:
    """`count` large cities, shuffled by the seed, none closer than `field_deg` degrees to one before it."""
    _check_count(count)
    cities = large_cities()
    order = np.random.Generator(np.random.Philox(key=[seed, 0xC171E5])).permutation(len(cities))
    chosen: list[Place] = []
    for index in order.tolist():
        city = cities[index]
        if all(_degrees_apart(city, other) >= field_deg for other in chosen):
            chosen.append(city)
            if len(chosen) == count:
                return _with_unique_names(chosen)
    raise UsageError(
        f"only {len(chosen)} cities lie {field_deg:g} degrees apart; ask for fewer brokers or a smaller field"
    )


def read_places(path: Path) -> list[Place]:
    """Places from a CSV file with the columns name, latitude, longitude, population."""
    try:
        if path.stat().st_size > _CSV_BYTES_MAX:
            raise DataError(f"{path} is larger than {_CSV_BYTES_MAX} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text") from None
    reader = csv.DictReader(text.splitlines())
    missing = [column for column in _CSV_COLUMNS if column not in (reader.fieldnames or ())]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}; it needs {', '.join(_CSV_COLUMNS)}")
    places = [_place_of(row, path, number) for number, row in enumerate(reader, 2)]
    if not places:
        raise DataError(f"{path} lists no brokers")
    _check_count(len(places))
    names = [place.name for place in places]
    if len(set(names)) != len(names):
        raise DataError(f"{path} lists a broker twice")
    return places


def _place_of(row: dict[str, str | None], path: Path, number: int) -> Place:
    try:
        name = (row["name"] or "").strip()
        lat, lon = float(row["latitude"] or ""), float(row["longitude"] or "")
        population = int(row["population"] or "")
    except ValueError:
        raise DataError(f"{path} line {number}: latitude, longitude and population must be numbers") from None
    if not name or len(name) > 100:
        raise DataError(f"{path} line {number}: a broker needs a name of at most 100 characters")
    if not (-90 <= lat <= 90 and -180 <= lon <= 180):
        raise DataError(f"{path} line {number}: {lat:g},{lon:g} is not a place on earth")
    if not 1 <= population <= 10**10:
        raise DataError(f"{path} line {number}: the population must be between 1 and 10 billion")
    return Place(name, lat, lon, population)


def _check_count(count: int) -> None:
    if not 1 <= count <= BROKERS_MAX:
        raise UsageError(f"the number of brokers must be between 1 and {BROKERS_MAX}, not {count}")


def _degrees_apart(a: Place, b: Place) -> float:
    lon = abs(a.lon - b.lon)
    return math.hypot(a.lat - b.lat, min(lon, 360 - lon))


def _with_unique_names(places: Iterable[Place]) -> list[Place]:
    """Cities may share a name; a later one gets a number so that names identify brokers."""
    taken: dict[str, int] = {}
    result = []
    for place in places:
        taken[place.name] = taken.get(place.name, 0) + 1
        number = taken[place.name]
        name = place.name if number == 1 else f"{place.name} {number}"
        result.append(Place(name, place.lat, place.lon, place.population))
    return result
