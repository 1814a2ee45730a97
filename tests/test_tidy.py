"""The house rules, as tests."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "geomq").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60

LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS: dict[str, int] = {}
"""Visible exceptions: path or path:function -> lines allowed."""

ONLY_DATA = (
    "geomq/dashboard/feed.py",
    "geomq/errors.py",
    "geomq/routing/core/actions.py",
    "geomq/routing/core/events.py",
    "geomq/routing/core/messages.py",
    "geomq/routing/core/model.py",
    "geomq/routing/trace/records.py",
)

TESTED_AS_A_WHOLE: dict[str, str] = {
    "geomq/broker/operations/admin_federation.py": "broker/peers/test_membership.py",
    "geomq/broker/clients/client.py": "broker/test_server_connections.py",
    "geomq/broker/operations/counts.py": "broker/operations/test_metrics.py",
    "geomq/broker/clients/delivery.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/fenced.py": "broker/test_server_geo.py",
    "geomq/broker/connections/listeners.py": "broker/test_interop.py",
    "geomq/broker/connections/ports.py": "broker/test_server_connections.py",
    "geomq/broker/clients/publishing.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/registry.py": "broker/test_server_durability.py",
    "geomq/broker/clients/retention.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/subscribing.py": "broker/test_server_protocol.py",
    "geomq/broker/operations/sys_topics.py": "broker/test_server_operations.py",
    "geomq/broker/config/toml_tables.py": "broker/config/test_load.py",
    "geomq/broker/operations/view.py": "broker/test_server_operations.py",
    "geomq/cli/analyse.py": "testbed/test_analyse.py",
    "geomq/cli/own_strategies.py": "cli/test_simulate.py",
    "geomq/cli/replay.py": "testbed/test_replay.py",
    "geomq/cli/reproduce_live.py": "reproduction/live/test_study.py",
    "geomq/cli/reproduce.py": "cli/test_report.py",
    "geomq/cli/simulate_sweep.py": "cli/test_simulate.py",
    "geomq/cli/testbed.py": "testbed/test_runner.py",
    "geomq/cli/workload.py": "cli/test_report.py",
    "geomq/reproduction/disgb/published.py": "cli/test_report.py",
    "geomq/reproduction/studies.py": "pipeline/test_studies.py",
    "geomq/mqtt/client/pings.py": "mqtt/client/test_session.py",
    "geomq/mqtt/client/receipts.py": "mqtt/test_client_session_model.py",
    "geomq/mqtt/client/subscriptions.py": "mqtt/client/test_session.py",
    "geomq/mqtt/codec/decode_connect.py": "mqtt/test_codec.py",
    "geomq/mqtt/session/inbound.py": "mqtt/test_session_model.py",
    "geomq/pipeline/generate.py": "pipeline/test_spark_evaluate.py",
    "geomq/pipeline/progress.py": "pipeline/test_spark_evaluate.py",
    "geomq/workload/evaluation/adaptive_kernel.py": "workload/evaluation/test_parity_adaptive.py",
    "geomq/testbed/soak.py": "testbed/test_faults.py",
    "geomq/testbed/streams.py": "testbed/test_faults.py",
    "geomq/workload/evaluation/kernel_messages.py": "workload/evaluation/test_kernel.py",
    "geomq/workload/evaluation/pair_traffic.py": "workload/evaluation/test_parity_adaptive.py",
}
"""Modules that only make sense together: the test file that drives them through their common door."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "src" if ROOT / "src" in path.parents else ROOT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_is_one_idea(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LONG_FILES.get(relative(path), FILE_LINES_MAX)


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_functions_are_short(path: Path) -> None:
    for function in functions(path):
        lines = (function.end_lineno or 0) - function.lineno + 1
        allowed = LONG_FUNCTIONS.get(f"{relative(path)}:{function.name}", FUNCTION_LINES_MAX)
        assert lines <= allowed, f"{function.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_nothing_is_left_for_later(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_every_legend_has_its_place(path: Path) -> None:
    """Left to find the best place, matplotlib warns when that takes more than a second on a busy machine."""
    for call in re.findall(r"\.legend\(([^)]*)\)", path.read_text()):
        assert re.search(r"loc=\"(?!best)", call), call


OF_THE_MACHINE = r"""(?x)
    \b time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)\b
    | \b (secrets|uuid)\. | \b os\.urandom\b | \b random\.(?!Random\b) | \b datetime\.now\b
    | \b (ThreadPoolExecutor|ProcessPoolExecutor|to_thread|run_in_executor|threading\.Thread)\b
    | \b from\ (time|secrets|uuid|random)\ import
"""
MAY_ASK_THE_MACHINE = ("platform.py", "trace_writer.py")
"""The one that hands it out, and a writer of files of which nothing comes back."""


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if "broker" in path.relative_to(ROOT / "src").parts], ids=relative
)
def test_a_broker_asks_its_platform_for_time_randomness_and_threads(path: Path) -> None:
    if path.name not in MAY_ASK_THE_MACHINE:
        assert re.search(OF_THE_MACHINE, path.read_text()) is None


def test_every_module_has_a_test_that_names_it() -> None:
    imported = "\n".join(path.read_text() for path in TESTS)
    for path in SOURCES:
        name = relative(path)
        if path.name in ("__init__.py", "__main__.py") or name in ONLY_DATA or name in TESTED_AS_A_WHOLE:
            continue
        module = name.removesuffix(".py").replace("/", ".")
        package, _, stem = module.rpartition(".")
        mirrored = ROOT / "tests" / Path(name).relative_to("geomq").parent / f"test_{stem}.py"
        named = module in imported or re.search(rf"from {re.escape(package)} import [^\n]*\b{stem}\b", imported)
        assert mirrored.exists() or named, f"no test for {module}"


def test_exceptions_are_still_needed() -> None:
    long_functions = (entry.partition(":")[0] for entry in LONG_FUNCTIONS)
    for name in [*LONG_FILES, *ONLY_DATA, *TESTED_AS_A_WHOLE, *long_functions]:
        assert (ROOT / "src" / name).exists(), name
    for test in TESTED_AS_A_WHOLE.values():
        assert (ROOT / "tests" / test).exists(), test


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_no_test_is_without_an_assertion(path: Path) -> None:
    words = ("Assert", "raises", "warns", "assert_", "check", "expect", "verify", "run_state_machine")
    for function in functions(path):
        if function.name.startswith("test_"):
            body = ast.dump(function)
            assert any(word in body for word in words), function.name


def test_the_product_speaks_of_itself_alone() -> None:
    documents = [path for path in ROOT.rglob("*.md") if ".venv" not in path.parts and "node_modules" not in path.parts]
    for path in [*SOURCES, *TESTS, *documents, ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if path != Path(__file__):
            assert not re.search(r"(?<![\w.])/(work|root|home)/", path.read_text()), path
