"""How a benchmark prints its figures."""

from __future__ import annotations

import os


def figure(name: str, value: float, unit: str, target: str = "") -> None:
    print(f"  {name:<58} {value:>12,.2f} {unit:<10} {f'(target {target})' if target else ''}".rstrip(), flush=True)


def load() -> None:
    """The machine may be busy with other things; whoever reads the figures should know."""
    print(f"  load average at the start: {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", flush=True)
