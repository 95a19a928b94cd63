"""Reports: pages of tables and figures about finished runs."""

from caltrain_tf.report.collect import Rows, collect, read_rows
from caltrain_tf.report.page import write_report

__all__ = ["Rows", "collect", "read_rows", "write_report"]
