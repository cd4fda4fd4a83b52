"""`archiver queue …`: pause, resume and drain queues, send jobs again, run a schedule now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer

from archiver.access.principal import LOCAL_OPERATOR
from archiver.cli.terminal.archive import OpenArchive, archive_for
from archiver.cli.terminal.output import Json, messages, print_json
from archiver.maintenance import operate
from archiver.maintenance.operate import QueueStatus
from archiver.quantity import quantity
from archiver.queue.jobs import QueueName

app = typer.Typer(no_args_is_help=True, help="Pause, resume and drain queues, send lost jobs again, run a schedule now.")
Queue = Annotated[QueueName, typer.Argument(help="The queue.")]


def _redis_url(at: OpenArchive) -> str:
    assert at.settings.redis_url is not None
    return at.settings.redis_url.get_secret_value()


def _act(act: Callable[[OpenArchive], QueueStatus], *, json: bool) -> None:
    with archive_for("queue") as at:
        status = act(at)
    if json:
        return print_json(asdict(status))
    state = "paused" if status.paused else "running"
    workers = quantity(len(status.workers), "worker")
    return messages.print(f"The queue {status.queue} is {state}: {status.counts.get('active', 0)} jobs running, {workers}.")


@app.command("show")
def show(queue: Queue, json: Json = False) -> None:
    """Show whether a queue is paused, its jobs by state, and its workers."""
    _act(lambda at: operate.load_status(_redis_url(at), queue), json=json)


@app.command("pause")
def pause(queue: Queue, json: Json = False) -> None:
    """Begin no job until `archiver queue resume`. Running jobs finish, and new ones wait."""
    _act(lambda at: operate.pause_queue(at.engine, _redis_url(at), queue, LOCAL_OPERATOR), json=json)


@app.command("resume")
def resume(queue: Queue, json: Json = False) -> None:
    """Begin jobs again."""
    _act(lambda at: operate.resume_queue(at.engine, _redis_url(at), queue, LOCAL_OPERATOR), json=json)


@app.command("drain")
def drain(
    queue: Queue,
    wait: Annotated[float, typer.Option(min=0, help="How many seconds to wait for running jobs.")] = 300.0,
    json: Json = False,
) -> None:
    """Pause a queue and wait until no job of it runs."""
    _act(lambda at: operate.drain_queue(at.engine, _redis_url(at), queue, LOCAL_OPERATOR, wait), json=json)


@app.command("requeue")
def requeue(queue: Queue, json: Json = False) -> None:
    """Send announced jobs again that Redis may have lost. A job that it still has is not doubled."""
    with archive_for("queue") as at:
        count = operate.requeue(at.engine, queue, LOCAL_OPERATOR)
    if json:
        return print_json({"jobs": count})
    return messages.print(f"{quantity(count, 'job')} will be sent again.")


@app.command("run")
def run(
    schedule: Annotated[str, typer.Argument(help="schedule-continuous-sync, reconcile-index or evaluate-alerts.")],
    json: Json = False,
) -> None:
    """Run a scheduled job now."""
    with archive_for("queue") as at:
        job_id = operate.run_schedule(at.engine, _redis_url(at), schedule, LOCAL_OPERATOR)
    if json:
        return print_json({"job_id": job_id})
    return messages.print(f"Added {job_id}.")
