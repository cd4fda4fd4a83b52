"""What is installed is what was tested: lock files with hashes that fit pyproject.toml, and a bill of materials of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from archiver import __version__

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-dev.lock")


def locked(file: str) -> dict[str, list[str]]:
    """The hashes of each pinned package."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / file).read_text().splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line.strip().removesuffix(" \\"))
        elif line and not line.startswith("#"):
            found[line.removesuffix(" \\")] = []
    return found


@pytest.mark.parametrize("file", LOCKS)
def test_every_package_is_pinned_with_hashes(file: str) -> None:
    for pinned, hashes in locked(file).items():
        assert re.fullmatch(r"[a-z0-9-]+==[^ ]+( ; .+)?", pinned), pinned
        assert hashes, pinned
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pinned


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="written with the oldest Python, which needs the most packages")
def test_the_lock_files_fit_what_is_asked_for() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "lock", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_everything_is_installed_by_hash() -> None:
    setup, dockerfile = (ROOT / "scripts" / "setup").read_text(), (ROOT / "Dockerfile").read_text()
    for text in (setup, dockerfile):
        installs = re.findall(r"pip\"? install .*", text)
        assert len(installs) == 2
        assert all("--require-hashes" in line or ("--no-deps" in line and "--no-build-isolation" in line) for line in installs)
    assert set(re.findall(r"lock=(\S+)", setup)) == set(LOCKS)


def test_the_bill_of_materials_names_what_is_locked() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "sbom"], capture_output=True, text=True, check=True)
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    parts = {f"{part['name']}=={part['version']}": part for part in bill["components"]}
    pinned = {line.partition(" ;")[0]: hashes for line, hashes in locked("requirements.lock").items()}
    assert set(parts) == set(pinned)
    for name, hashes in pinned.items():
        found = [one["hashes"][0]["content"] for one in parts[name]["externalReferences"]]
        assert [f"--hash=sha256:{digest}" for digest in found] == hashes
    assert bill["metadata"]["component"]["version"] == __version__
    again = subprocess.run([sys.executable, ROOT / "scripts" / "sbom"], capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout


def test_the_release_script_audits_and_lists() -> None:
    script = (ROOT / "scripts" / "release").read_text()
    subprocess.run(["bash", "-n", ROOT / "scripts" / "release"], check=True)
    for needed in (
        "pip-audit",
        "--strict",
        "scripts/lock --check",
        "scripts/sbom",
        "--require-hashes -r requirements.lock",
        "sha256sum",
    ):
        assert needed in script


def test_the_threat_model_names_everybody() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    for who in ("local user", "web administrator", "owner of the database", "storage", "operator", "auditor"):
        assert re.search(rf"^\| \*\*[^|]*{who}", text, re.MULTILINE), who
