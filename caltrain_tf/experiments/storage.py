"""Where the workers of a study meet: an Optuna storage."""

import os
import time

_JOURNALS = (".journal", ".log")
_ATTEMPTS = 5


def import_optuna():
    """Returns the package `optuna`, or says how to install it."""
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "Tuning needs the package optuna: pip install 'caltrain_tf[tune]'"
        ) from error
    # It would say at every start what we say once.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(url=None, output_dir=None):
    """Opens the storage that the workers of a study share.

    Args:
        url: A database as SQLAlchemy writes it (`sqlite:///study.db`,
            `postgresql://user:password@host/name`, `mysql+pymysql://...`), or
            the path of a journal file, ending in `.journal` or `.log`, which
            works on network file systems where SQLite does not.
        output_dir: Without a `url`, the folder of `study.db`, an SQLite file.

    Returns:
        An Optuna storage. Of two workers that take a trial from it, only one
        gets it.
    """
    optuna = import_optuna()
    if url is None:
        os.makedirs(output_dir, exist_ok=True)
        url = (
            f"sqlite:///{os.path.join(os.path.abspath(output_dir), 'study.db')}"
        )
    if "://" in url:
        return _database(optuna, url)
    if url.endswith(_JOURNALS):
        return optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(url)
        )
    raise ValueError(
        "`storage` must be the URL of a database, such as sqlite:///study.db, "
        f"or the path of a journal ending in one of {_JOURNALS}. "
        f"Received: storage={url!r}"
    )


def _database(optuna, url):
    is_sqlite = url.startswith("sqlite")
    options = {"pool_pre_ping": True}
    if is_sqlite:
        # Seconds to wait for another process.
        options = {"connect_args": {"timeout": 60}}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
            break
        except Exception:
            # Another worker is making the same tables at this moment.
            if attempt == _ATTEMPTS or not is_sqlite:
                raise
            time.sleep(0.2 * attempt)
    if is_sqlite:
        _lock_before_reading(storage.engine)
    return storage


def _lock_before_reading(engine):
    """Makes a transaction of SQLite begin where it reads, not where it writes.

    SQLite has no SELECT FOR UPDATE, with which Optuna takes trials and numbers
    them: two processes could read the same state, and both act on it.
    """
    from sqlalchemy import event

    def on_connect(connection, record):
        del record
        connection.isolation_level = None

    def on_begin(connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    # Connections from before know nothing of it.
    engine.dispose()
