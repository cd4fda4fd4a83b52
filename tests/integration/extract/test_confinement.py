"""What a child can't do, whatever the file that it reads makes it do. As root and as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from archiver.extract import confinement

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS has none of these measures")

ATTEMPTS = {
    "socket": "socket.socket()",
    "unix socket": "socket.socket(socket.AF_UNIX)",
    "read a file": "open({secret!r})",
    "list a folder": "os.listdir('/')",
    "read the environment of others": "open('/proc/1/environ')",
    "write a file": "open({folder!r} + '/written', 'w')",
    "start a program": "os.execv('/bin/true', ['true'])",
    "fork": "os.fork()",
    "kill the parent": "os.kill(os.getppid(), 0)",
    "trace": "assert ctypes.CDLL(None, use_errno=True).ptrace(16, os.getppid(), 0, 0) == 0 or fail()",
    "user namespace": "assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0 or fail()",
}


def confined(code: str, before: str = "") -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent("""
        import ctypes, os, socket, sys
        from archiver.extract import confinement
        {}
        print(confinement.confine(), flush=True)
        def fail():
            raise PermissionError("refused by the kernel")
        try:
            {}
        except PermissionError:
            sys.exit(77)
    """).format(before, code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Readable and writable for all: what keeps the child out is not its mode."""
    path = tmp_path / "secret"
    path.write_text("the storage key")
    path.chmod(0o666)
    tmp_path.chmod(0o777)
    return path


@pytest.mark.parametrize("attempt", sorted(ATTEMPTS))
def test_a_confined_process_can_do_no_harm(attempt: str, secret: Path) -> None:
    result = confined(ATTEMPTS[attempt].format(secret=str(secret), folder=str(secret.parent)))
    assert result.returncode == 77, (result.stdout, result.stderr)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_becomes_somebody_else_and_stays_it() -> None:
    result = confined("assert os.geteuid() == os.getuid() != 0; os.setuid(0)")
    assert confinement.OTHER_USER in result.stdout
    assert result.returncode == 77, result.stderr


def test_what_reading_needs_still_works() -> None:
    loading = "import encodings.iso8859_16, zoneinfo, threading; t = threading.Thread(target='ä'.encode, args=('cp1257',))"
    result = confined(f"{loading}; t.start(); t.join()")
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become an ordinary user")
@pytest.mark.parametrize("attempt", ["socket", "read a file", "fork"])
def test_an_ordinary_user_is_confined_as_well(attempt: str, secret: Path) -> None:
    code = ATTEMPTS[attempt].format(secret=str(secret), folder=str(secret.parent))
    becoming = "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)"
    result = confined(code, f"import sysconfig; sysconfig.get_paths(); {becoming}")
    assert result.returncode == 77, (result.stdout, result.stderr)
    assert confinement.OTHER_USER not in result.stdout


def test_packages_outside_of_the_environment_can_be_imported(tmp_path: Path, secret: Path) -> None:
    """Those of the system or the user, or those that a .pth file names."""
    packages = tmp_path / "elsewhere" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "from_elsewhere.py").write_text("")
    result = confined("import from_elsewhere", before=f"sys.path.append({str(packages)!r})")
    assert result.returncode == 0, result.stderr
    result = confined(f"open({str(secret)!r})", before=f"sys.path.append({str(secret.parent)!r})")
    assert (result.returncode == 77) is ("Landlock" in result.stdout)
