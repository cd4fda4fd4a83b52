"""What runs for each job, one file a job. A processor is a plain function in a thread; being run twice must not matter."""

from collections.abc import Callable
from typing import Any

from archiver.queue.jobs import Ping
from workers.processors import ping

PROCESSORS: dict[str, Callable[[Any], Any]] = {Ping.name: ping.process}
