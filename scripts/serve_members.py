#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The members that a request of OpenAI's API may have, as its own client's types name them, and those that vLLM adds: the
list that tests/serve/test_members.c holds the table of src/serve/api_members.c to. Needs the package openai, and vLLM's
wheel as a file (it is read, not installed). Development-time; no test of the suite runs it.

    scripts/serve_members.py vllm-VERSION.whl >tests/serve/members.txt
"""
import ast
import sys
import zipfile


def of_openai():
    import openai
    from openai.types import completion_create_params as text
    from openai.types.chat import completion_create_params as chat

    for kind, module in (("chat", chat), ("text", text)):
        names = set()
        for of in (module.CompletionCreateParamsBase, module.CompletionCreateParamsStreaming):
            names |= set(of.__annotations__)
        yield kind, names
    print(f"# openai {openai.__version__}")


def of_vllm(path):
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        print("# " + next(n for n in names if n.endswith(".dist-info/METADATA")).split("/")[0].replace("-", " ", 1).removesuffix(".dist-info"))
        for name in names:
            if not name.startswith("vllm/entrypoints/openai/") or not name.endswith("protocol.py"):
                continue
            for node in ast.walk(ast.parse(wheel.read(name))):
                kind = {"ChatCompletionRequest": "chat", "CompletionRequest": "text"}.get(getattr(node, "name", None))
                if isinstance(node, ast.ClassDef) and kind:
                    yield kind, {f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and not f.target.id.startswith("_")}


def main():
    all_of = {"chat": set(), "text": set()}
    for source in (of_openai(), of_vllm(sys.argv[1])):
        for kind, names in source:
            all_of[kind] |= names
    for kind, names in all_of.items():
        for name in sorted(names):
            print(kind, name)


main()
