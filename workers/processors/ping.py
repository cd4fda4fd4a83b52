"""Gives back what it got."""

from archiver.queue.jobs import Envelope, Ping
from workers.work import Work


def process(job: Ping, _: Work, __: Envelope) -> dict[str, str]:
    return {"token": job.token}
