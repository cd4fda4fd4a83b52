"""What every test may ask for."""

import os
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("ARCHIVER_TEST_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Real mail, which is not part of the project: ARCHIVER_TEST_CORPUS, or `shared/corpus` beside the project."""
    if not CORPUS.is_dir():
        pytest.skip(f"no mail corpus at {CORPUS} (set ARCHIVER_TEST_CORPUS)")
    return CORPUS
