"""What of llm's history the model gets to see."""

from llm.parts import Message, TextPart, ToolCallPart, ToolResultPart

from llm_mtplx.messages import check_calls, without_failed_turns


def said(role: str, text: str) -> Message:
    return Message(role=role, parts=[TextPart(text=text)])


CALL = Message(role="assistant", parts=[ToolCallPart(name="f", arguments={}, tool_call_id="1")])
RESULT = Message(role="tool", parts=[ToolResultPart(name="f", output="x", tool_call_id="1")])
SYSTEM, A, B, ANSWER = (
    said("system", "s"),
    said("user", "a"),
    said("user", "b"),
    said("assistant", "!"),
)


def check(given: list[Message], kept: list[Message], failed: int) -> None:
    assert without_failed_turns(given) == (kept, failed)


def test_whole_turns_stay() -> None:
    for history in ([B], [SYSTEM, B], [A, ANSWER, B], [SYSTEM, A, CALL, RESULT, ANSWER, B]):
        check(history, history, 0)


def test_a_question_without_an_answer_goes() -> None:
    nothing = Message(role="assistant", parts=[])
    check([A, B], [B], 1)
    check([A, nothing, B], [B], 1)
    check([SYSTEM, A, A, B], [SYSTEM, B], 2)
    check([A, ANSWER, A, A, ANSWER, A, B], [A, ANSWER, A, ANSWER, B], 2)


def test_a_call_without_its_result_goes_with_its_question() -> None:
    check([A, CALL, B], [B], 1)
    check([A, CALL, RESULT, CALL, B], [B], 1)
    # What a tool has said is known, whether or not the answer came.
    check([A, CALL, RESULT, B], [A, CALL, RESULT, B], 0)


def test_the_last_turn_is_the_one_to_answer() -> None:
    for last in ([A], [A, CALL, RESULT], [A, CALL]):
        check([B, ANSWER, *last], [B, ANSWER, *last], 0)


def test_a_prompt_may_begin_with_an_answer() -> None:
    check([ANSWER, A, ANSWER, B], [ANSWER, A, ANSWER, B], 0)


def test_the_beginning_of_a_call_is_none() -> None:
    """llm keeps what was streamed of a call that could not be read, beside one that was made."""
    begun = ToolCallPart(name="f", arguments={"_raw": '{"a": "'}, tool_call_id="0")
    both = Message(role="assistant", parts=[begun, *CALL.parts])
    assert check_calls([A, both, RESULT], ["f"]) == ""
    check(
        [A, Message(role="assistant", parts=[begun]), B], [A, Message("assistant", [begun]), B], 0
    )
