"""Runs scripts of `baselines/`, in this process or in one of their own."""

import contextlib
import io
import os
import pathlib
import runpy
import subprocess
import sys
import warnings
from unittest import mock

from absl import app, flags, logging

ROOT = pathlib.Path(__file__).parents[2]
SCRIPTS = ROOT / "baselines"


def start(script, *arguments, cwd=ROOT, **variables):
    """Starts `python baselines/SCRIPT ARGUMENTS` as a user starts it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    # Set by our conftest.py; a user has it not.
    environment.pop("TF_CPP_MIN_LOG_LEVEL")
    return subprocess.Popen(
        [sys.executable, f"baselines/{script}", *map(str, arguments)],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run_here(script, *arguments):
    """The same in this process, which has TensorFlow ready, to its end."""
    argv = [str(SCRIPTS / script), *map(str, arguments)]
    code, output, errors = 0, io.StringIO(), io.StringIO()
    app.define_help_flags()  # They stay, as do those of `app` itself.
    defined, verbosity = set(flags.FLAGS), logging.get_verbosity()
    # absl looks at it only once per process.
    only_check = "--only_check_args" in argv
    no_main = mock.patch.object(app, "_run_main")
    try:
        with (
            no_main if only_check else contextlib.nullcontext(),
            mock.patch.object(sys, "argv", argv),
            mock.patch.object(sys, "path", [str(SCRIPTS), *sys.path]),
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
