"""A run of a study that takes no time; `config["act"]` says what it does."""

import json
import os
import pathlib
import signal
import sys
import time


def main():
    job = json.loads(sys.stdin.readline())
    folder, config = pathlib.Path(job["folder"]), job["config"]
    act = config.get("act", "")
    (folder / "config.json").write_text(json.dumps(config))
    with open(folder / "starts", "a") as file:
        file.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\n")
    if act == "fail":
        print("about to fail")
        sys.exit("ValueError: no such thing")
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "nothing":
        sys.exit(0)
    if act == "meet":
        # Ends only when another run is there at the same time.
        (folder.parent / f"here{config['seed']}").touch()
        while len(list(folder.parent.glob("here*"))) < 2:
            time.sleep(0.01)
    if act == "wait" and not (folder.parent / "go").exists():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        (folder / "metrics.jsonl").write_text("{}\n")
        # Until it is stopped, or the study is gone.
        sys.stdin.read()
        (folder / "orphan").touch()
        sys.exit(1)
    keys = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
    results = {key: (config["seed"] + 1) / 100 for key in keys}
    (folder / "results.json").write_text(json.dumps(results))


# Collecting doctests imports this file.
if __name__ == "__main__":
    main()
