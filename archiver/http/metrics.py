"""The metrics that `/metrics` exports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, PlatformCollector, ProcessCollector

from archiver import __version__
from archiver.db.states import SearchState
from archiver.maintenance.health import Health
from archiver.maintenance.status import IndexState


class Metrics:
    """One registry per application, so that two applications in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        Info("archiver", "The running version.", registry=self.registry).info({"version": __version__})
        self._requests = Counter(
            "archiver_http_requests",
            "HTTP requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram("archiver_http_request_seconds", "Response time by route.", ["route"], registry=self.registry)
        self._up = Gauge("archiver_part_up", "1 if the component responds.", ["part"], registry=self.registry)
        self._part_seconds = Gauge(
            "archiver_part_check_seconds", "Response time of the component.", ["part"], registry=self.registry
        )
        self._jobs = Gauge(
            "archiver_jobs", "Jobs by kind and event: added, done, failed.", ["job", "event"], registry=self.registry
        )
        self._index_waiting = Gauge(
            "archiver_index_waiting_messages", "Messages whose index document is out of date.", registry=self.registry
        )
        self._index_lag = Gauge(
            "archiver_index_lag_seconds", "Age of the oldest message that waits for the index.", registry=self.registry
        )
        self._index_states = Gauge("archiver_index_messages", "Messages by search state.", ["state"], registry=self.registry)
        self._job_seconds = Gauge("archiver_job_seconds", "Time spent on jobs, by kind.", ["job"], registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def jobs(self, counts: Mapping[tuple[str, str], int], seconds: Mapping[str, float]) -> None:
        """Counters that the workers of all machines keep in Redis."""
        for (name, event), value in counts.items():
            self._jobs.labels(name, event).set(value)
        for name, spent in seconds.items():
            self._job_seconds.labels(name).set(spent)

    def index(self, found: IndexState) -> None:
        self._index_waiting.set(found.waiting)
        self._index_lag.set(found.lag_seconds)
        for state in SearchState:
            rest = found.messages - sum(found.states.values())
            self._index_states.labels(state).set(rest if state is SearchState.FULL else found.states.get(state, 0))

    def parts(self, parts: Iterable[Health]) -> None:
        for part in parts:
            self._up.labels(part.part).set(part.ok)
            self._part_seconds.labels(part.part).set(part.seconds)
