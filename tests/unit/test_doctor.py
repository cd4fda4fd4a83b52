"""What doctor says about machines that nobody here has."""

from __future__ import annotations

import pytest

from archiver.maintenance.checks.doctor import judge_machine


@pytest.mark.parametrize(
    ("system", "machine", "is_64_bit", "libc", "verdict", "text"),
    [
        ("Linux", "x86_64", True, ("glibc", "2.36"), "ok", "Linux x86_64 glibc 2.36"),
        ("Linux", "aarch64", True, ("glibc", "2.28"), "ok", "aarch64"),
        ("Linux", "aarch64", True, ("", ""), "ok", "Linux aarch64"),
        ("Linux", "aarch64", True, ("glibc", "2.27"), "failed", "glibc 2.27: the packages need 2.28"),
        ("Linux", "armv7l", False, ("glibc", "2.36"), "failed", "64-bit x86 and ARM only"),
        ("Linux", "aarch64", False, ("glibc", "2.36"), "failed", "64-bit x86 and ARM only"),
        ("Linux", "riscv64", True, ("glibc", "2.40"), "failed", "64-bit x86 and ARM only"),
        ("Darwin", "arm64", True, ("", ""), "ok", "not confined"),
        ("Darwin", "x86_64", True, ("", ""), "warning", "not confined"),
        ("FreeBSD", "amd64", True, ("", ""), "warning", "only Linux and macOS"),
    ],
)
def test_a_machine_is_judged(
    system: str, machine: str, is_64_bit: bool, libc: tuple[str, str], verdict: str, text: str
) -> None:
    found = judge_machine(system, machine, is_64_bit, libc)
    assert found.verdict == verdict
    assert text in found.text
