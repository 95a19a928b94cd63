"""A run that takes no time; `config["act"]` says what it does."""

import json
import os
import pathlib
import signal
import sys
import threading
import time


def main():
    folder, config = pathlib.Path(sys.argv[1]), json.loads(sys.argv[2])
    act = config.get("act", "")
    (folder / "config.json").write_text(json.dumps(config))
    variables = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    words = [os.environ.get(name, "-") for name in variables]
    with open(folder / "starts", "a") as file:
        file.write(f"{os.getpid()} {' '.join(words)}\n")
    if act == "fail":
        print("about to fail")
        sys.exit("ValueError: no such thing")
    if act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "nothing":
        sys.exit(0)
    if act in ("wait", "stubborn"):

        def stop(*_):
            (folder / "asked").touch()
            if act == "wait":
                os._exit(143)

        signal.signal(signal.SIGTERM, stop)
        threading.Thread(
            target=stop_with_parent, args=[folder], daemon=True
        ).start()
        (folder / "metrics.jsonl").write_text("{}\n")
        while not (folder.parent / "go").exists():
            time.sleep(0.01)
    keys = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")
    results = {key: (config["seed"] + 1) / 100 for key in keys}
    (folder / "results.json").write_text(json.dumps(results))
    os._exit(0)


def stop_with_parent(folder):
    os.read(0, 1)
    (folder / "orphan").touch()
    # As a real run does: `pool.stop_with_input`.
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    os._exit(1)


# Collecting doctests imports this file.
if __name__ == "__main__":
    main()
