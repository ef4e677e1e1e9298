"""Bodies of requests: what is not read as YAML since nothing says that it is."""

import pytest

from services.gateway.http.problems import Problem
from services.gateway.http.reading import YAML_HINT, read_document


@pytest.mark.parametrize(
    ("content_type", "hinted"), [("application/x-www-form-urlencoded", True), ("", True), ("application/json", False)]
)
def test_a_body_that_is_no_json_and_not_said_to_be_is_told_how_to_send_yaml(content_type, hinted):
    with pytest.raises(Problem) as caught:
        read_document(b"job: j", content_type)

    document = caught.value.document
    assert (document["status"], document["type"]) == (400, "urn:largesse:malformed")
    assert document["detail"].endswith(YAML_HINT) == hinted


def test_yaml_that_is_said_to_be_is_read():
    assert read_document(b"job: j", "application/yaml") == {"job": "j"}
