"""Runs in, a page of tables and figures out."""

from caltrain_tf.report.collect import collect
from caltrain_tf.report.report import write_report
from caltrain_tf.report.rows import Rows
from caltrain_tf.report.rows import read_rows

__all__ = ["Rows", "collect", "read_rows", "write_report"]
