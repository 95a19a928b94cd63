"""Runs a script of `baselines/` in this process, which has TensorFlow ready."""

import contextlib
import io
import pathlib
import runpy
import subprocess
import sys
import warnings
from unittest import mock

from absl import flags
from absl import logging

ROOT = pathlib.Path(__file__).parents[2]


def run_here(script, *arguments):
    """What `python baselines/SCRIPT ARGUMENTS` prints, and its exit code."""
    argv = [str(ROOT / "baselines" / script), *map(str, arguments)]
    code, output, errors = 0, io.StringIO(), io.StringIO()
    defined, verbosity = set(flags.FLAGS), logging.get_verbosity()
    try:
        with (
            mock.patch.object(sys, "argv", argv),
            warnings.catch_warnings(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(errors),
        ):
            # Those of a program are no errors.
            warnings.simplefilter("ignore")
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    finally:
        # The next script defines its own, maybe of the same names.
        for name in set(flags.FLAGS) - defined:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
        logging.set_verbosity(verbosity)
    if isinstance(code, str):
        # As the interpreter does at its end.
        errors.write(code)
        code = 1
    return subprocess.CompletedProcess(
        argv, code or 0, output.getvalue(), errors.getvalue()
    )
