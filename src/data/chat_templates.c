/* SPDX-License-Identifier: Apache-2.0 */
/* chat_templates.c: the table. Each was written for this file; the marks are the families'. */
#include "data/chat_templates.h"

#include <stddef.h>

/* What these templates have no place for is refused, not left out. */
#define TEXTS_ONLY                                                                                                     \
    "{% for m in messages %}{% if m.content is not string or m.tool_calls %}"                                          \
    "{{ raise_exception('message ' ~ loop.index0 ~ ': this template knows content that is text, and no tool calls; "   \
    "name the tokenizer\\'s own template, or a file') }}{% endif %}{% endfor %}"                                       \
    "{% if tools %}{{ raise_exception('this template knows no tools') }}{% endif %}"

/* A turn of any role between two marks; the answer ends with the second. */
#define TURNS(begin, behind_role, end)                                                                                 \
    "{% for m in messages %}{{ '" begin "' + m.role + '" behind_role "' }}"                                            \
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '" end "' }}{% endgeneration %}"              \
    "{% else %}{{ m.content | trim + '" end "' }}{% endif %}{{ behind | default('') }}{% endfor %}"                    \
    "{% if add_generation_prompt %}{{ '" begin "assistant" behind_role "' }}{% endif %}"

/* A system message goes before the first user's. */
#define SYSTEM_FIRST                                                                                                   \
    "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}"                                     \
    "{% set system = messages[0].content | trim + '\\n\\n' if messages[0].role == 'system' else '' %}"                 \
    "{% for m in turns %}"                                                                                             \
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"                                                            \
    "{{ raise_exception('user and assistant take turns here, the user first') }}{% endif %}"                           \
    "{% set text = (system if loop.first else '') + m.content | trim %}"

const struct chat_template chat_templates[] = {
    {"chatml",
     "<|im_start|>ROLE ... <|im_end|>, as Qwen and many others",
     TEXTS_ONLY "{% set behind = '\\n' %}" TURNS("<|im_start|>", "\\n", "<|im_end|>"),
     {"<|im_start|>", "<|im_end|>"}},
    {"llama3",
     "<|start_header_id|>ROLE<|end_header_id|> ... <|eot_id|>",
     TEXTS_ONLY "{{ bos_token }}" TURNS("<|start_header_id|>", "<|end_header_id|>\\n\\n", "<|eot_id|>"),
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"phi3",
     "<|ROLE|> ... <|end|>",
     TEXTS_ONLY "{% set behind = '\\n' %}" TURNS("<|", "|>\\n", "<|end|>"),
     {"<|user|>", "<|assistant|>", "<|end|>"}},
    {"zephyr",
     "<|ROLE|> ... end of text",
     TEXTS_ONLY "{% for m in messages %}{{ '<|' + m.role + '|>\\n' }}"
                "{% if m.role == 'assistant' %}{% generation %}{{ m.content + eos_token }}{% endgeneration %}"
                "{% else %}{{ m.content + eos_token }}{% endif %}{{ '\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}",
     {NULL}},
    {"llama2",
     "[INST] ... [/INST] answer, end of text; the system's words between <<SYS>> and <</SYS>>",
     TEXTS_ONLY "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}"
                "{% set system = '<<SYS>>\\n' + messages[0].content | trim + '\\n<</SYS>>\\n\\n' "
                "if messages[0].role == 'system' else '' %}"
                "{% for m in turns %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('user and assistant take turns here, the user first') }}{% endif %}"
                "{% if m.role == 'user' %}"
                "{{ bos_token + '[INST] ' + (system if loop.first else '') + m.content | trim + ' [/INST]' }}"
                "{% else %}{% generation %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endgeneration %}{% endif "
                "%}{% endfor %}",
     {NULL}},
    {"mistral",
     "[INST] ... [/INST] answer, end of text",
     TEXTS_ONLY "{{ bos_token }}" SYSTEM_FIRST "{% if m.role == 'user' %}{{ '[INST] ' + text + ' [/INST]' }}"
                "{% else %}{% generation %}{{ ' ' + text + eos_token }}{% endgeneration %}{% endif %}{% endfor %}",
     {NULL}},
    {"gemma",
     "<start_of_turn>user|model ... <end_of_turn>",
     TEXTS_ONLY
     "{{ bos_token }}" SYSTEM_FIRST
     "{% if m.role == 'user' %}{{ '<start_of_turn>user\\n' + text + '<end_of_turn>\\n' }}"
     "{% else %}{{ '<start_of_turn>model\\n' }}{% generation %}{{ text + '<end_of_turn>' }}{% endgeneration %}"
     "{{ '\\n' }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}",
     {"<start_of_turn>", "<end_of_turn>"}},
    {"deepseek",
     "<｜User｜> ... <｜Assistant｜> answer, end of text",
     TEXTS_ONLY "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
                "{% elif m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
                "{% elif m.role == 'assistant' %}{{ '<｜Assistant｜>' }}"
                "{% generation %}{{ m.content + eos_token }}{% "
                "endgeneration %}"
                "{% else %}{{ raise_exception('a role that is none of system, user and assistant: ' ~ m.role) }}{% "
                "endif %}{% endfor %}"
                "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}",
     {"<｜User｜>", "<｜Assistant｜>"}},
    {"plain",
     "User: ... Assistant: answer, end of text; needs no control tokens but that",
     TEXTS_ONLY "{% for m in messages %}{{ m.role | capitalize + ': ' }}"
                "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + eos_token }}{% endgeneration %}"
                "{% else %}{{ m.content | trim }}{% endif %}{{ '\\n\\n' }}{% endfor %}"
                "{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}",
     {NULL}},
    {NULL, NULL, NULL, {NULL}},
};
