"""The reference page of the metrics, made from the names a broker counts under.

`python -m geomq.broker.operations.metrics_page > docs/reference/metrics.md` writes it anew.
"""

from geomq.broker.operations.metrics import HELP, help_of
from geomq.broker.state.counts import Counts

LABELLED = {"dropped_events": 0}

HEAD = """# Metrics

A broker with `[admin] enabled = true` serves Prometheus text at `/metrics`: to everybody who may use the
[admin API](admin.md), or to everybody with `[metrics] public = true`.

```yaml
scrape_configs:
  - job_name: geomq
    authorization:
      credentials_file: /etc/prometheus/geomq-token
    static_configs:
      - targets: ["broker.example:9883"]
```

Counters only grow while the broker runs. The same numbers are in `GET /api/v1/broker` and, every
`[metrics] sys_interval_s` seconds, under `$SYS/broker/`. The usual process metrics are served as well:
`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and more; they are of the broker's own
process, without its workers.
"""


def metrics_page() -> str:
    """The whole page."""
    counts = Counts().as_dict()
    counters = [f"| `geomq_{name}_total` | counter | {help_of(name)} |" for name in sorted(counts)]
    gauges = [f"| `geomq_{name}` | gauge | {help_of(name)} |" for name in sorted(HELP) if name not in counts | LABELLED]
    fixed = [
        "| `geomq_broker_info` | info | Name and version of the broker, in the labels `name` and `version`. |",
        "| `geomq_start_time_seconds` | gauge | Start time of the broker, in seconds since 1970. |",
    ]
    labelled = [f"| `geomq_{name}_total` | counter | {help_of(name)} |" for name in sorted(LABELLED)]
    rows = "\n".join([*fixed, *gauges, *counters, *labelled])
    return f"{HEAD}\n| metric | kind | meaning |\n|---|---|---|\n{rows}\n"


if __name__ == "__main__":
    print(metrics_page(), end="")
