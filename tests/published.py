"""The demo with a chat template that has the rules of those Qwen publishes for 3.6 and 3.8.

Every content is trimmed; a conversation without a question of the user, and a system message that
does not come first, are refused; thinking is on unless it is turned off; and what becomes of the
reasoning before the last question depends on the release.
"""

from pathlib import Path
from typing import Literal

from .folders import copy_demo

# Reasoning before the last question: repeated, left out with its block, or the block left empty.
OldReasoning = Literal["kept", "dropped", "emptied"]

TEMPLATE = r"""
{%- macro call_text(call) -%}
    {%- set function = call.function if call.function is defined else call -%}
    {{- '<tool_call>\n<function=' ~ function.name ~ '>\n' -}}
    {%- for name, value in (function.arguments or {}) | items -%}
        {{- '<parameter=' ~ name ~ '>\n' -}}
        {{- value if value is string else value | tojson -}}
        {{- '\n</parameter>\n' -}}
    {%- endfor -%}
    {{- '</function>\n</tool_call>' -}}
{%- endmacro -%}
{%- if not messages -%}{{- raise_exception('No messages provided.') -}}{%- endif -%}
{%- set ns = namespace(query=-1) -%}
{%- for message in messages -%}
    {%- set text = (message.content or '') | trim -%}
    {%- if message.role == 'user' and not text.startswith('<tool_response>') -%}
        {%- set ns.query = loop.index0 -%}
    {%- endif -%}
{%- endfor -%}
{%- if ns.query < 0 -%}{{- raise_exception('No user query found in messages.') -}}{%- endif -%}
{%- set first = messages[0].content | trim if messages[0].role == 'system' else '' -%}
{%- if tools -%}
    {{- '<|im_start|>system\n# Tools\n\nYou may call these functions:\n\n<tools>' -}}
    {%- for tool in tools -%}{{- '\n' ~ (tool | tojson) -}}{%- endfor -%}
    {{- '\n</tools>\n\nTo call one, reply in this format only:\n\n<tool_call>\n' -}}
    {{- '<function=NAME>\n<parameter=ARG>\nVALUE\n</parameter>\n</function>\n</tool_call>' -}}
    {{- '\n\n' ~ first if first -}}
    {{- '<|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
    {{- '<|im_start|>system\n' ~ first ~ '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set content = (message.content or '') | trim -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{- raise_exception('System message must be at the beginning.') -}}
        {%- endif -%}
    {%- elif message.role == 'user' -%}
        {{- '<|im_start|>user\n' ~ content ~ '<|im_end|>\n' -}}
    {%- elif message.role == 'assistant' -%}
        {%- set reasoning = (message.reasoning_content or '') | trim -%}
        {{- '<|im_start|>assistant\n' -}}
        {%- if loop.index0 > ns.query or OLD_REASONING == 'kept' -%}
            {{- '<think>\n' ~ reasoning ~ '\n</think>\n\n' -}}
        {%- elif OLD_REASONING == 'emptied' -%}
            {{- '<think>\n\n</think>\n\n' -}}
        {%- endif -%}
        {{- content -}}
        {%- for call in message.tool_calls or [] -%}
            {{- '\n' if not loop.first else ('\n\n' if content else '') -}}
            {{- call_text(call) -}}
        {%- endfor -%}
        {{- '<|im_end|>\n' -}}
    {%- elif message.role == 'tool' -%}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' -%}
            {{- '<|im_start|>user' -}}
        {%- endif -%}
        {{- '\n<tool_response>\n' ~ content ~ '\n</tool_response>' -}}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' -%}
            {{- '<|im_end|>\n' -}}
        {%- endif -%}
    {%- else -%}
        {{- raise_exception('Unexpected message role.') -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\n<think>\n' -}}
    {{- '\n</think>\n\n' if enable_thinking is defined and enable_thinking is false -}}
{%- endif -%}
"""


def copy_demo_with_published_template(folder: Path, old_reasoning: OldReasoning) -> Path:
    copy_demo(folder)
    choice = "{%- set OLD_REASONING = '" + old_reasoning + "' -%}"
    (folder / "chat_template.jinja").write_text(choice + TEMPLATE)
    return folder
