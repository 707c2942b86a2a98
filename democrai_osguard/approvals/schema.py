"""The tables of a store, and how an older store becomes today's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from democrai_osguard.approvals.errors import StoreRefused

if TYPE_CHECKING:
    from democrai_osguard.approvals.database import Database, Dialect, Transaction

# Each entry leads from the version before it to its own. Add one; never change one.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE approval_meta (name TEXT PRIMARY KEY, value BIGINT NOT NULL)",
        "INSERT INTO approval_meta VALUES ('schema', 0), ('revision', 0), ('generation', 0)",
        """CREATE TABLE approval_history (
            id {serial}, at DOUBLE PRECISION NOT NULL, by_whom TEXT NOT NULL, act TEXT NOT NULL,
            subject_type TEXT NOT NULL, subject_name TEXT NOT NULL, resource_type TEXT NOT NULL,
            operation TEXT NOT NULL, target {blob} NOT NULL, scope TEXT, session_key TEXT NOT NULL,
            request_id TEXT, replaced TEXT NOT NULL)""",
        """CREATE TABLE approval_standing (
            id BIGINT NOT NULL, subject_type TEXT NOT NULL, subject_name TEXT NOT NULL,
            resource_type TEXT NOT NULL, operation TEXT NOT NULL, key BIGINT NOT NULL,
            session_key TEXT NOT NULL, scope TEXT NOT NULL, target {blob} NOT NULL,
            identity {blob} NOT NULL, decided_by TEXT NOT NULL,
            decided_at DOUBLE PRECISION NOT NULL, request_id TEXT)""",
        # The look-up of every check. The key stands for subject, resource type, operation and
        # place in eight bytes: a million decisions fit where their targets would not.
        "CREATE INDEX approval_standing_look_up ON approval_standing (key, session_key)",
        # The promise that no decision stands twice.
        "CREATE UNIQUE INDEX approval_standing_identity ON approval_standing (identity)",
        "CREATE UNIQUE INDEX approval_standing_id ON approval_standing (id)",
        """CREATE INDEX approval_standing_session ON approval_standing (session_key)
            WHERE session_key <> ''""",
        """CREATE TABLE approval_requests (
            id TEXT PRIMARY KEY, subject_type TEXT NOT NULL, subject_name TEXT NOT NULL,
            resource_type TEXT NOT NULL, operation TEXT NOT NULL, target {blob} NOT NULL,
            target_digest {blob} NOT NULL, session_key TEXT NOT NULL, user_id TEXT NOT NULL,
            organization_id TEXT NOT NULL, task_id TEXT NOT NULL, chain TEXT NOT NULL,
            held INTEGER NOT NULL, first_seen DOUBLE PRECISION NOT NULL,
            last_seen DOUBLE PRECISION NOT NULL, asked BIGINT NOT NULL,
            expires_at DOUBLE PRECISION, state TEXT NOT NULL, scope TEXT, decided_by TEXT,
            decided_at DOUBLE PRECISION, decision_id BIGINT, resume_action TEXT,
            resume_state TEXT NOT NULL, resume_sealed {blob}, revision BIGINT NOT NULL)""",
        """CREATE UNIQUE INDEX approval_requests_pending ON approval_requests (subject_type,
            subject_name, resource_type, operation, target_digest, session_key)
            WHERE state = 'pending'""",
        "CREATE INDEX approval_requests_revision ON approval_requests (revision)",
        "CREATE INDEX approval_requests_decision ON approval_requests (decision_id)",
        """CREATE INDEX approval_requests_resume ON approval_requests (resume_state)
            WHERE resume_state = 'ready'""",
    ),
    (
        # What each decision looks for to forget it: without these it would read every request.
        """CREATE INDEX approval_requests_withdrawn ON approval_requests (decided_at)
            WHERE resume_state = 'withdrawn' AND resume_sealed IS NOT NULL""",
        """CREATE INDEX approval_requests_closed ON approval_requests (last_seen)
            WHERE state <> 'pending' AND resume_state NOT IN ('ready', 'started')""",
    ),
)
VERSION = len(MIGRATIONS)


def migrate(database: Database) -> None:
    """Bring a store to this version; raise StoreRefused for one that is not ours to touch."""
    if _version(database) == VERSION:
        return
    with database.write() as transaction:
        # Another process may have been quicker, so the version is read again under the lock.
        version = _tables_version(transaction, database.dialect)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                transaction.execute(_spelled(statement, database.dialect))
        transaction.change("UPDATE approval_meta SET value = ? WHERE name = 'schema'", (VERSION,))


def _version(database: Database) -> int:
    names = {str(row[0]) for row in database.fetch(database.dialect.tables)}
    if "approval_meta" not in names:
        return _empty(names, database.dialect)
    return _known(database.fetch("SELECT value FROM approval_meta WHERE name = 'schema'"))


def _tables_version(transaction: Transaction, dialect: Dialect) -> int:
    names = {str(row[0]) for row in transaction.execute(dialect.tables)}
    if "approval_meta" not in names:
        return _empty(names, dialect)
    return _known(transaction.execute("SELECT value FROM approval_meta WHERE name = 'schema'"))


def _empty(names: set[str], dialect: Dialect) -> int:
    if names and not dialect.shares:
        raise StoreRefused("the file is a database of something else")
    return 0


def _known(rows: list[tuple[object, ...]]) -> int:
    version = rows[0][0] if rows else None
    if not isinstance(version, int) or not 0 < version <= VERSION:
        raise StoreRefused(
            f"the store has version {version}, this program knows versions up to {VERSION};"
            " use the newer program"
        )
    return version


def _spelled(statement: str, dialect: Dialect) -> str:
    return statement.replace("{serial}", dialect.serial).replace("{blob}", dialect.blob)
