"""The metrics that `/metrics` exports. docs/operations/metrics.md describes each of them; a test compares the two."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from archiver import __version__
from archiver.db.counters import SECONDS_BUCKETS, CounterKey
from archiver.db.states import SearchState
from archiver.maintenance.checks.health import Health
from archiver.maintenance.figures import Figure
from archiver.maintenance.status import IndexState


@dataclass(frozen=True, slots=True)
class Described:
    help: str
    labels: tuple[str, ...] = ()


GAUGES: dict[str, Described] = {
    "archiver_queue_jobs": Described("Jobs in Redis by queue and state.", ("queue", "state")),
    "archiver_queue_paused": Described("1 if the queue is paused.", ("queue",)),
    "archiver_workers": Described("Worker processes that are connected to the queue.", ("queue",)),
    "archiver_outbox_rows": Described("Announced jobs by queue and state: pending, sent.", ("queue", "state")),
    "archiver_outbox_oldest_seconds": Described("How long the oldest due job has waited to be sent.", ("queue",)),
    "archiver_dead_letters": Described("Open dead letters by kind.", ("kind",)),
    "archiver_dead_letter_oldest_seconds": Described("Age of the oldest open dead letter.", ("kind",)),
    "archiver_ledger_gap_messages": Described("Listed messages that are neither archived nor explained.", ("source",)),
    "archiver_source_state": Described("1 for the state that the source is in.", ("source", "state")),
    "archiver_source_failures": Described("Consecutive failed cycles.", ("source",)),
    "archiver_source_last_success_timestamp_seconds": Described("When a cycle last succeeded.", ("source",)),
    "archiver_session_age_seconds": Described("Age of the running cycle.", ("source",)),
    "archiver_session_idle_seconds": Described("Time since the running cycle last made progress.", ("source",)),
    "archiver_packs": Described("Packs by state.", ("state",)),
    "archiver_pack_bytes": Described("Size of all packs."),
    "archiver_message_bytes": Described("Size of all messages as they arrived."),
    "archiver_spool_bytes": Described("Bytes of uploads that are not imported yet."),
    "archiver_disk_free_bytes": Described("Free space on the disk of the data folder."),
    "archiver_disk_bytes": Described("Size of the disk of the data folder."),
    "archiver_journal_waiting_files": Described("Files of journal mail that wait to be archived."),
    "archiver_journal_waiting_bytes": Described("Their bytes."),
    "archiver_journal_last_message_timestamp_seconds": Described("When the journal last received a message."),
    "archiver_alerts_open": Described("Open alerts by rule and severity.", ("rule", "severity")),
    "archiver_notices_pending": Described("Notices about alerts that are not sent yet."),
    "archiver_maintenance_success_timestamp_seconds": Described("When it last succeeded: verify, backup, drill.", ("name",)),
    "archiver_maintenance_failure_timestamp_seconds": Described("When it last failed.", ("name",)),
    "archiver_worker_resident_bytes": Described("Memory of a worker process.", ("queue", "worker")),
    "archiver_worker_cpu_seconds": Described("Processor time of a worker process since its start.", ("queue", "worker")),
    "archiver_worker_running_jobs": Described("Jobs that a worker process is working on.", ("queue", "worker")),
    "archiver_worker_seen_timestamp_seconds": Described("When a worker process was last seen alive.", ("queue", "worker")),
}
COUNTERS: dict[str, Described] = {
    "archiver_jobs": Described("Jobs by name and event: added, done, delayed, failed.", ("job", "event")),
    "archiver_jobs_stalled": Described("Jobs whose worker was lost while it worked on them.", ("queue",)),
    "archiver_messages_archived": Described("Messages that were new to the archive, by kind of source.", ("kind",)),
    "archiver_bytes_archived": Described("Their bytes.", ("kind",)),
    "archiver_message_duplicates": Described("Messages that the archive already had.", ("kind",)),
    "archiver_journal_received_messages": Described("Journal messages that were acknowledged."),
    "archiver_journal_received_bytes": Described("Their bytes."),
    "archiver_journal_delivered_messages": Described("Journal messages that were archived."),
    "archiver_journal_refused": Described("Refusals of the journal by SMTP code.", ("code",)),
    "archiver_provider_throttled": Described("How often a provider asked us to slow down.", ("kind",)),
}
HISTOGRAMS: dict[str, Described] = {
    "archiver_job_seconds": Described("Duration of jobs by name.", ("job",)),
    "archiver_journal_delivery_seconds": Described("Duration of a delivery of journal mail into the archive."),
}


class _SharedCollector(Collector):
    """What all processes share: counters in Postgres, and the state of queues, sources and store."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []
        self.counts: Mapping[CounterKey, float] = {}

    def describe(self) -> Iterator[Metric]:
        yield from (GaugeMetricFamily(name, one.help) for name, one in GAUGES.items())

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Figure]] = defaultdict(list)
        for figure in self.figures:
            by_name[figure.name].append(figure)
        for name, one in GAUGES.items():
            gauge = GaugeMetricFamily(name, one.help, labels=one.labels)
            for figure in by_name[name]:
                gauge.add_metric(figure.labels, figure.value)
            yield gauge
        for name, one in COUNTERS.items():
            counter = CounterMetricFamily(name, one.help, labels=one.labels)
            for labels, value in self._values(name, one.labels):
                counter.add_metric(labels, value)
            yield counter
        yield from (self._histogram(name, one) for name, one in HISTOGRAMS.items())

    def _values(self, name: str, labels: tuple[str, ...]) -> Iterator[tuple[list[str], float]]:
        for (found, values), value in self.counts.items():
            if found == name:
                yield [dict(values).get(label, "") for label in labels], value

    def _histogram(self, name: str, one: Described) -> Metric:
        family = HistogramMetricFamily(name, one.help, labels=one.labels)
        sums = {tuple(labels): value for labels, value in self._values(f"{name}_sum", one.labels)}
        buckets: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
        for (*labels, bound), value in self._values(f"{name}_bucket", (*one.labels, "le")):
            buckets[tuple(labels)][bound] = value
        for key, found in buckets.items():
            total, cumulative = 0.0, []
            for bound in (*(f"{limit:g}" for limit in SECONDS_BUCKETS), "+Inf"):
                total += found.get(bound, 0.0)
                cumulative.append((bound, total))
            family.add_metric(key, cumulative, sums.get(key, 0.0))
        return family


class Metrics:
    """One registry per application, so that two applications in one process do not collide."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._shared = _SharedCollector()
        self.registry.register(self._shared)
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
        self._index_waiting = Gauge(
            "archiver_index_waiting_messages", "Messages whose index document is out of date.", registry=self.registry
        )
        self._index_lag = Gauge(
            "archiver_index_lag_seconds", "Age of the oldest message that is not searchable yet.", registry=self.registry
        )
        self._index_states = Gauge("archiver_index_messages", "Messages by search state.", ["state"], registry=self.registry)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def shared(self, figures: list[Figure], counts: Mapping[CounterKey, float]) -> None:
        self._shared.figures, self._shared.counts = figures, counts

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
