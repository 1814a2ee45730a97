"""The house rules, as tests."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "geomq").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

FILE_LINES_MAX = 450
FUNCTION_LINES_MAX = 60

LONG_FILES: dict[str, int] = {"geomq/broker/peers/peering.py": 471}
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
    "geomq/broker/state/client.py": "broker/test_server_connections.py",
    "geomq/broker/state/counts.py": "broker/operations/test_metrics.py",
    "geomq/broker/clients/delivery.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/fenced.py": "broker/test_server_geo.py",
    "geomq/broker/connections/listeners.py": "broker/test_interop.py",
    "geomq/broker/clients/following.py": "broker/test_server_geo.py",
    "geomq/broker/peers/changes.py": "broker/peers/test_membership.py",
    "geomq/broker/connections/admission.py": "broker/test_server_security.py",
    "geomq/broker/connections/acknowledgements.py": "mqtt/session/test_session_model.py",
    "geomq/broker/connections/order.py": "broker/connections/test_connection.py",
    "geomq/broker/connections/ports.py": "broker/test_server_connections.py",
    "geomq/broker/connections/transport.py": "broker/test_server_connections.py",
    "geomq/broker/clients/publishing.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/registry.py": "broker/test_server_durability.py",
    "geomq/broker/clients/retention.py": "broker/test_server_protocol.py",
    "geomq/broker/clients/subscribing.py": "broker/test_server_protocol.py",
    "geomq/broker/operations/sys_topics.py": "broker/test_server_operations.py",
    "geomq/broker/workers/process.py": "broker/workers/test_crew.py",
    "geomq/broker/workers/worker.py": "broker/workers/test_crew.py",
    "geomq/broker/config/federation.py": "broker/config/test_load.py",
    "geomq/broker/config/mosquitto_file.py": "broker/config/test_mosquitto_conf.py",
    "geomq/broker/config/mosquitto_state.py": "broker/config/test_mosquitto_conf.py",
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
    "geomq/mqtt/client/receipts.py": "mqtt/client/test_session_model.py",
    "geomq/mqtt/client/subscriptions.py": "mqtt/client/test_session.py",
    "geomq/mqtt/codec/decode_connect.py": "mqtt/codec/test_codec.py",
    "geomq/mqtt/session/outcomes.py": "broker/state/test_drops.py",
    "geomq/broker/peers/peer_settings.py": "broker/peers/test_peering.py",
    "geomq/mqtt/session/inbound.py": "mqtt/session/test_session_model.py",
    "geomq/pipeline/generate.py": "pipeline/test_spark_evaluate.py",
    "geomq/pipeline/progress.py": "pipeline/test_spark_evaluate.py",
    "geomq/workload/evaluation/adaptive_kernel.py": "workload/evaluation/test_parity_adaptive.py",
    "geomq/testbed/replay_client.py": "testbed/test_replay.py",
    "geomq/testbed/soak.py": "testbed/test_faults.py",
    "geomq/testbed/streams.py": "testbed/test_faults.py",
    "geomq/workload/evaluation/kernel_messages.py": "workload/evaluation/test_kernel.py",
    "geomq/workload/evaluation/pair_traffic.py": "workload/evaluation/test_parity_adaptive.py",
    "geomq/sim/soak_run.py": "sim/test_soak.py",
}
"""Modules that only make sense together: the test file that drives them through their common door."""


def relative(path: Path) -> str:
    return path.relative_to(ROOT / "src" if ROOT / "src" in path.parents else ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_a_file_is_one_idea() -> None:
    lines = {relative(path): len(text_of(path).splitlines()) for path in SOURCES}
    assert {name: found for name, found in lines.items() if found > LONG_FILES.get(name, FILE_LINES_MAX)} == {}


def test_functions_are_short() -> None:
    lines = [
        (f"{relative(path)}:{function.name}", (function.end_lineno or 0) - function.lineno + 1)
        for path in SOURCES
        for function in functions(path)
    ]
    assert [(name, found) for name, found in lines if found > LONG_FUNCTIONS.get(name, FUNCTION_LINES_MAX)] == []


def test_a_module_says_what_it_owns() -> None:
    assert [relative(path) for path in SOURCES if not ast.get_docstring(tree_of(path))] == []


def test_nothing_is_left_for_later() -> None:
    later = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [relative(path) for path in SOURCES if later.search(text_of(path))] == []


def test_every_legend_has_its_place() -> None:
    """Left to find the best place, matplotlib warns when that takes more than a second on a busy machine."""
    calls = [call for path in SOURCES for call in re.findall(r"\.legend\(([^)]*)\)", text_of(path))]
    assert [call for call in calls if not re.search(r"loc=\"(?!best)", call)] == []


TALLIES = ("counts", "_counts")
"""Running totals are plain integers that anybody raises: a call for each would cost more than many a packet."""

WRITES_TO_OTHERS: dict[str, set[str]] = {
    # Settings of objects of other libraries, which ask for it.
    "geomq/broker/operations/http_server.py": {"self._server.should_exit"},
    "geomq/broker/operations/logs.py": {"logger.propagate"},
    "geomq/broker/peers/federating.py": {"context.verify_flags", "dial.check_hostname", "listen.verify_mode"},
    # For each event: a call would cost more than the write.
    "geomq/broker/fastpath/publishing.py": {"connection.last_route", "self._pacing.arrivals", "self._pacing.credit"},
    # Still to become calls.
    "geomq/broker/connections/admission.py": {"connection.exchange", "connection.pending_connect"},
    "geomq/routing/federation/live_editions.py": {"routings.publishing", "self._routings.publishing"},
    "geomq/routing/federation/routings.py": {"made.seen"},
    "geomq/routing/node.py": {"state.location"},
    "geomq/routing/strategies/groups/merging.py": {"self.seat.heard"},
}
"""Visible exceptions: what a module still writes to objects of others."""


def module_of(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_of(path): path for path in SOURCES}


def imports_of(path: Path) -> set[str]:
    """The modules of ours that a module imports anywhere, also inside functions and for type checking alone."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{relative(path)}: relative import"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in whole]
        else:
            continue
        found |= {name for name in names if name in MODULES}
    return found


def reached_from(start: str, graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def test_no_imports_form_a_cycle() -> None:
    """A module can be read with only those it imports in mind; imports for type checking count."""
    graph = {module: imports_of(path) for module, path in MODULES.items()}
    assert {module for module in graph if module in reached_from(module, graph)} == set()


def test_the_architecture_draws_the_packages_as_import_linter_orders_them() -> None:
    drawing = text_of(ROOT / "ARCHITECTURE.md").split("```")[1].strip().splitlines()
    drawn = [set(row[:27].split()) for row in drawing]
    contracts = tomllib.loads(text_of(ROOT / "pyproject.toml"))["tool"]["importlinter"]["contracts"]
    ordered = [set(layer.split(" | ")) for layer in contracts[0]["layers"]]
    assert drawn == [layer for layer in ordered if layer != {"__main__"}]


def fields_of(tree: ast.Module) -> set[str]:
    """The attributes that the classes of a module give themselves."""
    found = set()
    for made in ast.walk(tree):
        if isinstance(made, ast.ClassDef):
            for node in ast.walk(made):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node.value):
                    found.add(node.attr)
            for each in made.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    found.add(each.target.id)
    return found


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def made_here(function: ast.AST) -> set[str]:
    """Names that a function gives only to what it has just constructed."""
    fresh: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            called = node.value.func if isinstance(node.value, ast.Call) else None
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            (fresh if name.lstrip("_")[:1].isupper() else other).add(node.targets[0].id)
    return fresh - other


def writes_to_others(path: Path) -> set[str]:
    """Attributes a module sets on objects that are neither its own nor of its own classes."""
    tree = tree_of(path)
    own, found = fields_of(tree), set()

    def visit(node: ast.AST, fresh: set[str]) -> None:
        for child in ast.iter_child_nodes(node):
            inner = made_here(child) if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else fresh
            if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load):
                owner = ast.unparse(child.value)
                reached_for = "." in owner and not owner.startswith("self.")
                is_own = is_self(child.value) or owner in inner or (child.attr in own and not reached_for)
                if not is_own and owner.rpartition(".")[2] not in TALLIES:
                    found.add(f"{owner}.{child.attr}")
            visit(child, inner)

    visit(tree, set())
    return found


def test_a_module_changes_its_own_state_and_asks_others_to_change_theirs() -> None:
    packages = [ROOT / "src" / "geomq" / name for name in ("broker", "routing")]
    writes = {relative(path): writes_to_others(path) for package in packages for path in package.rglob("*.py")}
    assert {name: found for name, found in writes.items() if found} == WRITES_TO_OTHERS


OF_THE_MACHINE = r"""(?x)
    \b time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)\b
    | \b (secrets|uuid)\. | \b os\.urandom\b | \b random\.(?!Random\b) | \b datetime\.now\b
    | \b (ThreadPoolExecutor|ProcessPoolExecutor|to_thread|run_in_executor|threading\.Thread)\b
    | \b from\ (time|secrets|uuid|random)\ import
"""
MAY_ASK_THE_MACHINE = ("platform.py", "trace_writer.py")
"""The one that hands it out, and a writer of files of which nothing comes back."""


def test_a_broker_asks_its_platform_for_time_randomness_and_threads() -> None:
    asking = [
        path for path in (ROOT / "src" / "geomq" / "broker").rglob("*.py") if re.search(OF_THE_MACHINE, text_of(path))
    ]
    assert [relative(path) for path in asking if path.name not in MAY_ASK_THE_MACHINE] == []


def test_every_module_has_a_test_that_names_it() -> None:
    imported = "\n".join(text_of(path) for path in TESTS)
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


def asserts(node: ast.AST) -> bool:
    words = ("raises", "warns", "assert_", "check", "expect", "verify", "run_state_machine")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return isinstance(node, ast.Assert) or any(word in name for word in words)


def test_no_test_is_without_an_assertion() -> None:
    tests = [(path, each) for path in TESTS for each in functions(path) if each.name.startswith("test_")]
    without = [(path, test.name) for path, test in tests if not any(map(asserts, ast.walk(test)))]
    assert [f"{relative(path)}:{name}" for path, name in without] == []


def test_the_product_speaks_of_itself_alone() -> None:
    documents = [path for path in ROOT.rglob("*.md") if ".venv" not in path.parts and "node_modules" not in path.parts]
    for path in [*SOURCES, *TESTS, *documents, ROOT / "Makefile", ROOT / "pyproject.toml"]:
        if path != Path(__file__):
            assert not re.search(r"(?<![\w.])/(work|root|home)/", text_of(path)), path
