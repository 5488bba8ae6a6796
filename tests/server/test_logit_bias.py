"""Single tokens made likelier or ruled out."""

from typing import Any

import openai
import pytest

from llm_mtplx.attach.wire import from_line, request_fields, request_from, to_line
from llm_mtplx.chat.tokenizer import ChatTokenizer
from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.protocol import Request

from .client import Client
from .test_openai import QUESTION

MODEL = "mtplx-demo"
TOKENIZER = ChatTokenizer(MODEL_DIR)
PROMPT = TOKENIZER.render(QUESTION, {})
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": QUESTION, "max_tokens": 12},
    "/v1/completions": {"prompt": PROMPT, "max_tokens": 12},
    "/v1/responses": {"input": QUESTION, "max_output_tokens": 12},
}


def text(answer: Any) -> str:
    assert answer.status == 200, answer.raw
    if "choices" not in answer.json:
        return "".join(part["text"] for part in answer.json["output"][0]["content"])
    (choice,) = answer.json["choices"]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("path", ASKED)
def test_forced_and_ruled_out(server: Client, path: str, temperature: float) -> None:
    def said(bias: dict[str, float]) -> str:
        body = {"model": MODEL, "temperature": temperature, "seed": 1, **ASKED[path]}
        return text(server.post(path, {**body, "logit_bias": bias}))

    (token,) = TOKENIZER.encode(" is")
    free = said({})
    assert free == said({str(token): 0})
    if temperature == 0:
        assert " is" in free
    assert said({str(token): 100}) == " is" * 12
    assert " is" not in said({str(token): -100})
    assert said({str(token): -100, "5": 0.5, "6": -1}) != free


@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "bias",
    [
        {"5": 101},
        {"5": -100.5},
        {"five": 1},
        {"-5": 1},
        {"5.0": 1},
        {" 5": 1},
        {"05": 1},
        {"\u0665": 1},
        {"5": "1"},
        {"5": True},
        {"5": [1]},
        {"999999999": 1},
        {"99999999999999999999": 1},
        {str(len(TOKENIZER.token_bytes)): 1},
        {"999999": 0},
        [[5, 1]],
        "5",
    ],
    ids=str,
)
def test_what_is_no_bias_is_refused(server: Client, path: str, bias: Any) -> None:
    for stream in (False, True):
        body = {"model": MODEL, **ASKED[path], "logit_bias": bias, "stream": stream}
        refused = server.post(path, body)
        assert refused.status == 400, refused.raw
        assert "logit_bias" in refused.json["error"]["message"]


def test_drafts_do_not_change_it(oai: openai.OpenAI) -> None:
    """The depth is the model's own here; a seed repeats with it."""
    bias = {str(token): 3 for token in range(0, 2000, 3)}
    texts = {
        oai.chat.completions.create(
            model=MODEL, messages=QUESTION, seed=3, temperature=1, max_tokens=30, logit_bias=bias
        )
        .choices[0]
        .message.content
        for _ in range(3)
    }
    assert len(texts) == 1


def test_it_reaches_a_resident_engine() -> None:
    request = Request(MODEL, MODEL_DIR, [], logit_bias=((3, 1.5), (7, -100.0)))
    fields = from_line(to_line(request_fields(request)))
    assert request_from(fields).logit_bias == request.logit_bias
