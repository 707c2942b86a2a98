"""A PostgreSQL server of the tests' own: a private folder, a private socket, no network."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def programs() -> Path | None:
    """Return the folder of the newest server's programs, None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


def offered() -> bool:
    """Tell whether a server can be started here."""
    try:
        import psycopg  # noqa: F401, PLC0415 - an extra
    except ImportError:
        return False
    return programs() is not None and (os.geteuid() != 0 or _unprivileged() is not None)


class PostgresServer:
    """One server, which refuses to run as root and so runs as another user."""

    def __init__(self) -> None:
        self._user = _unprivileged() if os.geteuid() == 0 else None
        self.folder = Path(tempfile.mkdtemp(prefix="osguard-pg-"))
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self._run("initdb", "-D", f"{self.folder}/data", "-U", "tests", "-A", "trust", "-N")
        self.databases = 0
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
        log = f"{self.folder}/log"
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-o", options, "-l", log, "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", f"{self.folder}/data", "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    def fresh_url(self) -> str:
        """Return the URL of an empty database."""
        self.databases += 1
        name = f"test{self.databases}"
        self._run("createdb", "-h", str(self.folder), "-U", "tests", name)
        return f"postgresql:///{name}?host={self.folder}&user=tests"

    def fresh_url_in(self, folder: str) -> str:
        """Return the URL of an empty database whose tables lie in this folder."""
        import psycopg  # noqa: PLC0415 - an extra

        place = Path(folder) / "tables"
        place.mkdir()
        if self._user is not None:
            shutil.chown(place, self._user)
        address = f"host={self.folder} user=tests"
        with psycopg.connect(f"{address} dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{place}'".encode())
            connection.execute("CREATE DATABASE small TABLESPACE small")
        return f"postgresql:///small?host={self.folder}&user=tests"

    def _run(self, program: str, *arguments: str) -> None:
        folder = programs()
        assert folder is not None
        command = [str(folder / program), *arguments]
        # Into a file: a server that inherits a pipe keeps its reader waiting.
        with (self.folder.parent / f"{self.folder.name}.out").open("w+") as out:
            done = subprocess.run(
                command, stdout=out, stderr=out, check=False, user=self._user, cwd="/", timeout=60
            )
            out.seek(0)
            assert done.returncode == 0, out.read()
        Path(out.name).unlink()


def _unprivileged() -> str | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None
