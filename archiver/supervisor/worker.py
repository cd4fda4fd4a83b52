"""`python -m archiver.supervisor.worker QUEUE`: `python -m workers QUEUE`, wherever the installation has that package."""

import runpy

if __name__ == "__main__":
    runpy.run_module("workers", run_name="__main__", alter_sys=True)
