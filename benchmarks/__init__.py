"""Measurements. `make bench` runs all of them, `make bench BENCH=startup` one; each prints what it measured and the target."""
