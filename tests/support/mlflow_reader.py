"""Runs in a Python of its own with MLflow: prints the spans of its traces, as JSON.

Arguments: the URL of MLflow's server, or the path of a file of OTLP/JSON lines. Lines are parsed by
OpenTelemetry's own protocol buffers, which refuse unknown fields and wrong types.
"""

import base64
import json
import sys
from pathlib import Path


def from_server(url: str) -> list:
    """Return the spans that the server has, by trace."""
    import mlflow

    client = mlflow.MlflowClient(url)
    traces = client.search_traces(locations=["0"])
    return [
        {
            "trace": trace.info.trace_id,
            "spans": [
                {
                    "id": span.span_id,
                    "parent": span.parent_id,
                    "name": span.name,
                    "start": span.start_time_ns,
                    "end": span.end_time_ns,
                    "status": span.status.status_code.name,
                    "message": span.status.description,
                    "attributes": dict(span.attributes),
                }
                for span in client.get_trace(trace.info.trace_id).data.spans
            ],
        }
        for trace in traces
    ]


def _as_base64(value: object) -> object:
    """Replace ids, which OTLP has in hexadecimal digits and protocol buffers in base64."""
    if isinstance(value, dict):
        return {
            name: base64.b64encode(bytes.fromhex(each)).decode()
            if name in {"traceId", "spanId", "parentSpanId"}
            else _as_base64(each)
            for name, each in value.items()
        }
    return [_as_base64(each) for each in value] if isinstance(value, list) else value


def from_file(path: Path) -> dict:
    """Return the number of spans and links, and which lengths their ids have."""
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = {"spans": 0, "links": 0, "dropped": 0, "lengths": []}
    lengths = set()
    for line in path.read_text().splitlines():
        request = ParseDict(_as_base64(json.loads(line)), ExportTraceServiceRequest())
        for resource in request.resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                found["spans"] += 1
                found["links"] += len(span.links)
                found["dropped"] += span.dropped_links_count
                lengths |= {(len(each.trace_id), len(each.span_id)) for each in [span, *span.links]}
    found["lengths"] = sorted(lengths)
    return found


if __name__ == "__main__":
    target = sys.argv[1]
    answer = from_server(target) if "://" in target else from_file(Path(target))
    sys.stdout.write(json.dumps(answer))
