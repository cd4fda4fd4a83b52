"""Metrics: what is documented is what is exported, and rules and dashboard name nothing else."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import generate_latest

from archiver.db.counters import Counters
from archiver.http.metrics import COUNTERS, GAUGES, HISTOGRAMS, Metrics
from archiver.maintenance.checks.health import Health
from archiver.maintenance.figures import Figure
from archiver.maintenance.status import IndexState

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "operations" / "metrics.md"
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "archiver.json"


def exported() -> dict[str, tuple[str, set[str]]]:
    """Every metric of ours with its kind and labels, read from what is served when each has a value."""
    metrics = Metrics()
    figures = [Figure(name, tuple("x" for _ in one.labels), 1.0) for name, one in GAUGES.items()]
    counters = Counters()
    for name, one in COUNTERS.items():
        counters.add(name, 1.0, **dict.fromkeys(one.labels, "x"))
    for name, one in HISTOGRAMS.items():
        counters.observe(name, 0.2, **dict.fromkeys(one.labels, "x"))
    metrics.shared(figures, counters.take())
    metrics.request("GET", "/", 200, 0.1)
    metrics.parts([Health("postgres", True, "", 0.1)])
    metrics.index(IndexState(1, 0, {}))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", generate_latest(metrics.registry).decode(), re.MULTILINE))
    found = {}
    for line in generate_latest(metrics.registry).decode().splitlines():
        if line.startswith("archiver"):
            name = re.match(r"\w+", line)[0]  # type: ignore[index]
            family = re.sub(r"_(bucket|sum|count|created)$", "", name)
            name = family if kinds.get(family) == "histogram" else name
            if not name.endswith("_created"):
                found[name] = (kinds.get(name, ""), set(re.findall(r'(\w+)="', line)) - {"le"})
    return found


def test_what_is_documented_is_what_is_exported() -> None:
    rows = re.findall(r"^\| `(archiver_\w+)` \|([^|]*)\|", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    found = exported()
    assert documented == {name: labels for name, (_, labels) in found.items()}


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", [])]
    return [*rules, *panels]


@pytest.mark.parametrize("expression", expressions())
def test_rules_and_dashboard_name_metrics_that_exist(expression: str) -> None:
    promql_parser.parse(expression.replace("$__rate_interval", "5m"))
    found = exported()
    suffixed = {
        f"{name}_{end}" for name, (kind, _) in found.items() if kind == "histogram" for end in ("bucket", "sum", "count")
    }
    assert set(re.findall(r"\barchiver_\w+", expression)) <= found.keys() | suffixed


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(
        target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel.get("targets", [])
    )
    assert [name for name in exported() if name not in shown and name != "archiver_info"] == []


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt install prometheus)")
def test_promtool_accepts_the_rules() -> None:
    subprocess.run(["promtool", "check", "rules", RULES], check=True, capture_output=True)


def test_a_histogram_is_cumulative_and_complete() -> None:
    counters = Counters()
    for seconds in (0.001, 0.01, 0.2, 7.0, 99_999.0):
        counters.observe("archiver_job_seconds", seconds, job="ping")
    metrics = Metrics()
    metrics.shared([], counters.take())
    lines = [
        line for line in generate_latest(metrics.registry).decode().splitlines() if line.startswith("archiver_job_seconds")
    ]
    assert 'archiver_job_seconds_bucket{job="ping",le="0.01"} 2.0' in lines
    assert 'archiver_job_seconds_bucket{job="ping",le="+Inf"} 5.0' in lines
    assert 'archiver_job_seconds_count{job="ping"} 5.0' in lines


def test_counting_is_thread_safe() -> None:
    counters = Counters()

    def count(_: Any = None) -> None:
        for _ in range(10_000):
            counters.add("x", job="y")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.take() == {("x", (("job", "y"),)): 40_000.0}
    assert counters.take() == {}
