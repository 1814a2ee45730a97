"""Write a generated workload to disk, in one process.

Owns the order of the steps: parts first, then the small files, the manifest last. The Spark engine replaces only
the writing of parts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from geomq.extras import need
from geomq.workload.dataset import PART_BLOCKS, write_frame, write_manifest, write_part
from geomq.workload.files import new_directory
from geomq.workload.generation.presets import Request
from geomq.workload.model import Spec
from geomq.workload.world import World

WriteParts = Callable[[Path, int], Sequence[int]]


def write_workload(
    directory: Path,
    world: World,
    spec: Spec,
    request: Request,
    *,
    overwrite: bool,
    write_parts: WriteParts | None = None,
) -> dict[str, Any]:
    """Write the dataset of a workload; returns how much was written."""
    need("pyarrow")
    blocks = spec.block_count(world)
    parts = -(-blocks // PART_BLOCKS)

    def one_by_one(target: Path, count: int) -> list[int]:
        return [write_part_of(target, world, spec, request.seed, part) for part in range(count)]

    with new_directory(directory, kind="workload", overwrite=overwrite) as target:
        counts = (write_parts or one_by_one)(target, parts)
        write_frame(target, world, spec)
        summary = {"clients": int(spec.homes(world).sum()), "actions": int(sum(counts)), "parts": parts}
        facts = {"preset": request.preset, "seed": request.seed, "field_deg": world.field_deg}
        facts |= {"circles_deg": list(world.circles_deg), "seconds": spec.end_ms / 1000}
        write_manifest(target, {"kind": "workload", **facts, **summary})
    return summary


def write_part_of(directory: Path, world: World, spec: Spec, seed: int, part: int) -> int:
    """Generate and write one part; returns how many actions it has."""
    first, last = part * PART_BLOCKS, min((part + 1) * PART_BLOCKS, spec.block_count(world))
    return write_part(directory, part, [spec.block(world, seed, block) for block in range(first, last)])
