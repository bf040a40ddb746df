#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of `tutti serve` asked by OpenAI's own client; and a GGUF file read by the format's own package. Needs the packages
openai and gguf; a development-time check, no test of the suite runs it.

    scripts/serve_clients.py http://127.0.0.1:8000/v1 [FILE.gguf]
"""
import sys


def ask(url):
    import openai

    client = openai.OpenAI(base_url=url, api_key="none")
    model = client.models.list().data[0].id
    whole = client.completions.create(model=model, prompt="Once upon a time", max_tokens=20, temperature=0, logprobs=2)
    pieces = client.completions.create(model=model, prompt="Once upon a time", max_tokens=20, temperature=0, stream=True)
    assert whole.choices[0].text == "".join(p.choices[0].text for p in pieces), "streamed text is another one"
    assert len(whole.choices[0].logprobs.tokens) == whole.usage.completion_tokens
    echo = client.completions.create(model=model, prompt="Once upon", max_tokens=0, echo=True, logprobs=1)
    assert echo.choices[0].text == "Once upon" and echo.choices[0].logprobs.token_logprobs[0] is None
    two = client.completions.create(model=model, prompt=["a", "b"], max_tokens=3, n=2, seed=1)
    assert [c.index for c in two.choices] == [0, 1, 2, 3]
    try:
        client.completions.create(model=model, prompt="a", max_tokens=-1)
        raise AssertionError("max_tokens -1 was taken")
    except openai.BadRequestError as e:
        assert "max_tokens" in str(e)
    try:
        chat = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8,
                                              logprobs=True, top_logprobs=2, temperature=0)
        assert chat.choices[0].message.role == "assistant" and len(chat.choices[0].logprobs.content[0].top_logprobs) == 2
        parts = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hello"}], max_tokens=8,
                                               temperature=0, stream=True, stream_options={"include_usage": True})
        said = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
        assert said == chat.choices[0].message.content
        print("chat: ok")
    except openai.BadRequestError as e:
        assert "chat template" in str(e), e
        print("chat: the model has no template")
    print(f"openai {openai.__version__}: ok")


def read(path):
    import gguf
    import numpy

    r = gguf.GGUFReader(path)
    names = [t.name for t in r.tensors]
    assert "token_embd.weight" in names and len(set(names)) == len(names)
    for t in r.tensors:
        x = gguf.dequantize(t.data, t.tensor_type)
        assert numpy.isfinite(x).all(), t.name
    print(f"gguf: {len(names)} tensors, {len(r.fields)} fields: ok")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ask(sys.argv[1])
    if len(sys.argv) > 2:
        read(sys.argv[2])
