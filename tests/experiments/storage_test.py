import os
import sqlite3
import sys

import pytest

from caltrain_tf.experiments.storage import import_optuna
from caltrain_tf.experiments.storage import open_storage

optuna = import_optuna()


def test_an_sqlite_file_by_default(tmp_path):
    folder = tmp_path / "new" / "folder"
    open_storage(None, folder)
    assert (folder / "study.db").exists()
    # As in another run of the script, which names the file.
    storage = open_storage(f"sqlite:///{folder}/study.db")
    assert storage.get_all_studies() == []


def test_a_journal(tmp_path):
    storage = open_storage(str(tmp_path / "study.journal"))
    assert isinstance(storage, optuna.storages.JournalStorage)
    optuna.create_study(storage=storage, study_name="here")
    again = open_storage(str(tmp_path / "study.journal"))
    assert [s.study_name for s in again.get_all_studies()] == ["here"]


@pytest.mark.parametrize("url", ["study.db", "sqlite:/study.db", ""])
def test_other_texts_are_errors(url):
    with pytest.raises(ValueError, match="`storage` must be.*Received"):
        open_storage(url)


def test_sqlite_locks_before_it_reads(tmp_path):
    storage = open_storage(None, tmp_path)
    other = sqlite3.connect(tmp_path / "study.db", timeout=0)
    with storage.scoped_session() as session:
        session.connection()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
    other.execute("BEGIN IMMEDIATE")
    other.close()


def test_what_to_install_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'caltrain_tf\[tune\]'"):
        open_storage(None, os.devnull)
