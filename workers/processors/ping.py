"""Gives back what it got."""

from archiver.queue.jobs import Ping


def process(job: Ping) -> dict[str, str]:
    return {"token": job.token}
