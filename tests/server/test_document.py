"""Whatever the app's own document allows, and much that it does not, has a proper answer."""

import json

import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import status_code_conformance, unsupported_method

from .client import Client

LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/messages": "max_tokens",
    "/v1/responses": "max_output_tokens",
}


def test_every_request_is_answered_or_refused(server: Client) -> None:
    document = schemathesis.openapi.from_url(f"{server.address}/openapi.json")

    def check(case: schemathesis.Case) -> None:
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            # Past the first check, and not for long.
            case.body["model"] = "mtplx-demo"
            if case.path in LIMITS:
                case.body[LIMITS[case.path]] = 2
        answer = case.call_and_validate(
            checks=[not_a_server_error, status_code_conformance, unsupported_method]
        )
        if answer.status_code >= 400 and answer.status_code != 405:
            assert json.loads(answer.content)["error"]["message"]

    limited = settings(
        max_examples=6, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
    )
    for found in document.get_all_operations():
        limited(given(case=found.ok().as_strategy())(check))()
