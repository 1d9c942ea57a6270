"""The last line of output of workloads whose truth is more than seconds."""

import json
import traceback


def report_facts(cause, seconds, facts, *, also=()):
    """Print the truth with `facts` as the last line of standard output.

    Parameters
    ----------
    cause
        The id of the planted cause; None for a healthy script.
    seconds
        Wall seconds from the first submission until the results are there.
    facts
        What a diagnosis has to state, or what shows that the script is healthy.
    also
        The ids of the second, smaller sickness.
    """
    truth = {
        "cause": cause,
        "seconds": round(seconds, 4),
        "planted": None,
        "also": list(also),
        "facts": facts,
    }
    print(json.dumps(truth), flush=True)  # noqa: T201


def facts_of(error, path):
    """Return the type, message, function and line of an error, in the code of a script.

    Cloudpickle calls the file of functions that it carries `<dynamic-code>`.
    """
    places = {path, "<dynamic-code>"}
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in places]
    return {
        "type": type(error).__name__,
        "message": str(error),
        "function": frames[-1].name,
        "line": frames[-1].lineno,
    }


def health_of(stream, threads, seconds):
    """Return how busy threads were, and what was moved, by a stream of tasks.

    Parameters
    ----------
    stream
        The data of a `distributed.get_task_stream`.
    threads
        The number of threads that all workers have.
    seconds
        Wall seconds of the run.
    """
    spans = [span for task in stream for span in task["startstops"]]
    computed = [span["stop"] - span["start"] for span in spans if span["action"] == "compute"]
    moved = [span["stop"] - span["start"] for span in spans if span["action"] == "transfer"]
    return {
        "utilisation": round(sum(computed) / (threads * seconds), 3),
        "tasks": len(computed),
        "median_task": round(sorted(computed)[len(computed) // 2], 4),
        "transfer": round(sum(moved), 3),
    }
