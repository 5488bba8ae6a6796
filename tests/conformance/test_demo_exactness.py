"""On the bundled model, as it ships: every depth gives the ids of mlx-lm's own loop."""

import mlx.core as mx
import pytest
from mlx_lm.generate import generate_step

from llm_mtplx.demo import MODEL_DIR
from llm_mtplx.engine.load import LoadedModel, load
from llm_mtplx.speculative.decoder import Decoder
from llm_mtplx.speculative.distributions import Sampling

LENGTH = 24

PROMPTS = [
    "What is the capital of France?",
    "What is the capital of Japan?",
    "What is the opposite of hot?",
    "What sound does a cow make?",
    "What day comes after Monday?",
    "What is 3 + 4?",
    "What is 12 plus 7?",
    "Count from 1 to 10.",
    "Count from 5 to 15.",
    "List three colours.",
    "Say the alphabet.",
    "Tell me a story.",
    "Tell me a joke.",
    "Repeat after me: green apples fall slowly",
    "Hello!",
    "How are you?",
    "My name is Zorblat.",
    "My favourite colour is purple and I live in Porto.",
    "Who are you?",
    "Good night",
    # From outside its world, where drafts are often wrong.
    "Explain quantum entanglement to a child.",
    "Write a haiku about rust.",
    "def fibonacci(n):",
    "Translate 'good morning' into Latin, please.",
    "zxqv blorp 17 @@ !!",
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return load(MODEL_DIR, lambda line: None)


def prompt_ids(model: LoadedModel, text: str, thinking: bool) -> list[int]:
    messages = [{"role": "user", "content": text}]
    return model.tokenizer.encode(model.tokenizer.render(messages, {"enable_thinking": thinking}))


def drafted(model: LoadedModel, prompt: list[int], depth: int) -> list[int]:
    decoder = Decoder(model.trunk, model.head, Sampling())
    list(decoder.prefill(prompt))
    ids = [decoder.first()]
    while len(ids) < LENGTH:
        ids += decoder.round(depth, LENGTH - len(ids), lambda token: False).tokens
    return ids


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("text", PROMPTS)
def test_ids_are_those_of_plain_greedy_decoding(
    model: LoadedModel, text: str, thinking: bool
) -> None:
    prompt = prompt_ids(model, text, thinking)
    steps = generate_step(mx.array(prompt), model.trunk.model, max_tokens=LENGTH)
    want = [int(token) for token, _ in steps]
    for depth in range(5):
        assert drafted(model, prompt, depth) == want, depth
