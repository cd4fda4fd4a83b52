"""What `/metrics` tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, PlatformCollector, ProcessCollector

from archiver import __version__
from archiver.services.health import Health


class Metrics:
    """One registry per application, so that two in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        Info("archiver", "The running version.", registry=self.registry).info({"version": __version__})
        self._requests = Counter(
            "archiver_http_requests",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "archiver_http_request_seconds", "Time to answer by route.", ["route"], registry=self.registry
        )
        self._up = Gauge("archiver_part_up", "1 if the part answers.", ["part"], registry=self.registry)
        self._part_seconds = Gauge(
            "archiver_part_check_seconds", "How long the part took to answer.", ["part"], registry=self.registry
        )
        self._jobs = Gauge(
            "archiver_jobs", "Jobs by kind and what happened: added, done, failed.", ["job", "event"], registry=self.registry
        )
        self._job_seconds = Gauge("archiver_job_seconds", "Time spent on jobs by kind.", ["job"], registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def jobs(self, counts: Mapping[tuple[str, str], int], seconds: Mapping[str, float]) -> None:
        """What the workers of all machines have counted in Redis."""
        for (name, event), value in counts.items():
            self._jobs.labels(name, event).set(value)
        for name, spent in seconds.items():
            self._job_seconds.labels(name).set(spent)

    def parts(self, parts: Iterable[Health]) -> None:
        for part in parts:
            self._up.labels(part.part).set(part.ok)
            self._part_seconds.labels(part.part).set(part.seconds)
