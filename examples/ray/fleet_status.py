"""Shows the GPUs of all nodes of a Ray cluster: one task per node runs `gpuws status --json`.

    python fleet_status.py [--deadline SECONDS] [--gpuws PROGRAM]

The object is that of `gpuws status --host … --json`: a node without an answer has the reason, and
the exit code is then 3. A task asks for no GPU, so it runs while all of them are taken.
"""

import argparse
import json
import subprocess
import sys

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

LIMIT = 8 << 20


# Its worker ends after the task; otherwise it stays as ray::IDLE.
@ray.remote(num_cpus=0, num_gpus=0, max_calls=1, max_retries=0)
def status(program, deadline):
    """Returns what gpuws prints on this node and its exit code, or why there is nothing."""
    words = [program, "status", "--json", "--deadline", f"{deadline / 2}s"]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=deadline)
    except FileNotFoundError:
        return None, "gpuws not found"
    except subprocess.TimeoutExpired:
        return None, f"no answer within {deadline} s"
    return (ran.returncode, ran.stdout[: LIMIT + 1]), ran.stderr[-200:].decode(errors="replace")


def host(name, said, why):
    """Returns what is known of a node."""
    code, answer = None, None
    if said is not None:
        code, text = said
        try:
            answer = json.loads(text) if len(text) <= LIMIT else None
        except ValueError as error:
            why = f"its answer cannot be read: {error}"
        if not isinstance(answer, dict) or answer.get("schema") != 1:
            answer, why = None, why or "its answer cannot be read"
    error = None if answer is not None else {"what": why}
    return {"host": name, "answer": answer, "exit_code": code, "error": error}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deadline", type=float, default=30.0)
    parser.add_argument("--gpuws", default="gpuws")
    options = parser.parse_args()
    ray.init(address="auto", log_to_driver=False, logging_level="error")
    nodes = sorted((n for n in ray.nodes() if n["Alive"]), key=lambda n: n["NodeManagerAddress"])
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = status.options(scheduling_strategy=there)
        asked.append(task.remote(options.gpuws, options.deadline))
    # One deadline for all, with time to start the workers.
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=options.deadline + 30)
    hosts = []
    for node, task in zip(nodes, asked):
        try:
            said, why = ray.get(task, timeout=0) if task in ready else (None, "no answer in time")
        except (GetTimeoutError, RayError) as error:
            said, why = None, str(error).splitlines()[0]
        hosts.append(host(node["NodeManagerAddress"], said, why))
    answered = sum(host["answer"] is not None for host in hosts)
    print(json.dumps({"schema": 1, "answered_count": answered, "hosts": hosts}, indent=2))
    return 0 if answered == len(hosts) else 3


if __name__ == "__main__":
    sys.exit(main())
