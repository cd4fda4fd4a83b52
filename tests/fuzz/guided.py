"""Guided by coverage, with atheris: `python -m tests.fuzz.guided [libFuzzer options]`. Its bytes steer the grammar."""

import sys

import atheris

with atheris.instrument_imports(include=["archiver"]):
    from tests.fuzz.reading import read_all

from tests.fuzz.chance import GivenChance
from tests.fuzz.grammar import Grammar


def read(data: bytes) -> None:
    read_all(Grammar(GivenChance(data)).message())


def main() -> None:
    atheris.Setup(sys.argv, read)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
