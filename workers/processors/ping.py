"""Returns its input, to prove that a queue is served."""

from archiver.queue.jobs import JobEnvelope, Ping
from workers.context import WorkerContext


def process(job: Ping, _: WorkerContext, __: JobEnvelope) -> dict[str, str]:
    return {"token": job.token}
