"""Validate crates with roc-validator, without a network; runs in a virtual environment of its own.

Prints JSON: for each crate the issues of requirements (severity, check, message). The validator
reads the context of RO-Crate 1.1 through its cache, which gets the copy in the package rocrate.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import requests
import rocrate
from rocrate_validator import services
from rocrate_validator.models import Severity, ValidationSettings
from rocrate_validator.utils.http import HttpRequester
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


def seed() -> None:
    """Put the context into the cache."""
    raw = (Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld").read_bytes()
    assert json.loads(raw)["@id"] == CONTEXT
    response = requests.Response()
    response.status_code = 200
    response.url = CONTEXT
    response.headers["Content-Type"] = "application/ld+json"
    response._content = raw
    response.raw = HTTPResponse(io.BytesIO(raw), preload_content=False, request_url=CONTEXT)
    response.request = requests.Request("GET", CONTEXT).prepare()
    HttpRequester().session.cache.save_response(response)


def validate(crate: str, severity: str, cache: str) -> list[list[str]]:
    """Return the issues of a crate."""
    settings = ValidationSettings(
        rocrate_uri=crate,
        profile_identifier="provenance-run-crate-0.5",
        requirement_severity=Severity[severity],
        offline=True,
        cache_path=Path(cache),
    )
    seed()
    result = services.validate(settings)
    return [
        [issue.severity.name, issue.check.identifier, str(issue.message)]
        for issue in result.get_issues()
    ]


def main() -> None:
    """Validate the crates of the command line."""
    severity, *crates = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        found = {crate: validate(crate, severity, f"{folder}/cache") for crate in crates}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
