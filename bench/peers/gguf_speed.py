#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model that tutti exports as GGUF, in llama.cpp: whether it writes the same greedy tokens, and how fast beside tutti.

    bench/peers/gguf_speed.py TUTTI CHECKPOINT [--prompt TEXT] [--tokens N] [--rounds R] [--long N] [--shape KEY=VALUE ...]

Exports f32, bf16 and q8_0 files, and for each has both programs continue the prompt greedily; tutti with --dtype f32, bf16 and
bf16 --weights int8. In fewer bits both round in other places, so of two tokens nearly as likely each may take another: it also
counts at how many tokens of tutti's text llama.cpp takes the same one after the same text. Then llama.cpp writes and reads a prompt
of N tokens, one thread, timed by its own processor time, the best of R rounds; and beside it `tutti bench generate` does, of a model
with random weights and the keys of --shape, which are to be the checkpoint's. Needs llama-cpp-python (which compiles llama.cpp; LLAMA_CPP_LIB_PATH names another build). A
development-time check, no test of the suite runs it.
"""
import argparse
import ctypes
import json
import os
import subprocess
import tempfile
import time

import llama_cpp as L


@ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
def quiet(level, text, data):
    pass


class Peer:
    def __init__(self, file, positions):
        p = L.llama_model_default_params()
        p.n_gpu_layers = 0
        self.model = L.llama_model_load_from_file(file.encode(), p)
        assert self.model, file
        c = L.llama_context_default_params()
        c.n_ctx, c.n_batch, c.n_ubatch, c.n_threads, c.n_threads_batch = positions, 512, 512, 1, 1
        self.context = L.llama_init_from_model(self.model, c)
        self.vocab = L.llama_model_get_vocab(self.model)

    def tokens(self, text):
        room = (L.llama_token * 4096)()
        n = L.llama_tokenize(self.vocab, text.encode(), len(text.encode()), room, 4096, False, True)
        return list(room[:n])

    def feed(self, ids):
        """Seconds; the last token's logits are there after it."""
        a = (L.llama_token * len(ids))(*ids)
        start = time.thread_time()
        assert L.llama_decode(self.context, L.llama_batch_get_one(a, len(ids))) == 0
        return time.thread_time() - start

    def likeliest(self):
        n = L.llama_vocab_n_tokens(self.vocab)
        logits = L.llama_get_logits_ith(self.context, -1)[:n]
        return max(range(n), key=logits.__getitem__)

    def agrees(self, ids, whole):
        """Of how many tokens behind ids, each after those before it, this is the likeliest one."""
        self.forget()
        self.feed(ids)
        same = 0
        for t in whole[len(ids) :]:
            same += self.likeliest() == t
            self.feed([t])
        return same, len(whole) - len(ids)

    def forget(self):
        L.llama_memory_clear(L.llama_get_memory(self.context), True)

    def write(self, ids, n):
        self.forget()
        self.feed(ids)
        said, best = [self.likeliest()], 1e9
        while len(said) < n:
            best = min(best, self.feed([said[-1]]))
            said.append(self.likeliest())
        return said, best


def tutti(args, dtype, weights):
    words = [args.tutti, "generate", args.checkpoint, "--prompt", args.prompt, "--temperature", "0", "--max-tokens", str(args.tokens),
             "--dtype", dtype, "--threads", "1", "--json"] + (["--weights", weights] if weights else [])
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return json.loads(out.strip().splitlines()[-1])


def bench(args, dtype, weights):
    words = [args.tutti, "bench", "generate", "--model", "llama-110m", "--dtype", dtype, "--threads", "1", "--sequences", "1", "--prompt",
             str(args.long), "--json"] + (["--weights", weights] if weights else []) + args.shape
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("tutti")
    p.add_argument("checkpoint")
    p.add_argument("--prompt", default="Once upon a time there was")
    p.add_argument("--tokens", type=int, default=48)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--long", type=int, default=256)
    p.add_argument("--shape", nargs="*", default=[])
    args = p.parse_args()
    L.llama_log_set(quiet, None)
    with tempfile.TemporaryDirectory() as folder:
        for file, dtype, weights in (("f32", "f32", None), ("bf16", "bf16", None), ("q8_0", "bf16", "int8")):
            path = os.path.join(folder, file + ".gguf")
            subprocess.run([args.tutti, "checkpoint", "export", args.checkpoint, path, "--format", "gguf", "--dtype", file], check=True,
                           capture_output=True)
            peer = Peer(path, args.long + args.tokens + 64)
            ids = peer.tokens(args.prompt)
            theirs, _ = peer.write(ids, args.tokens)
            ours = tutti(args, dtype, weights)
            text = b""
            for t in theirs:
                piece = ctypes.create_string_buffer(256)
                n = L.llama_token_to_piece(peer.vocab, t, piece, 256, 0, True)
                text += piece.raw[:n]
            said = ours["text"].encode()
            same = len(os.path.commonprefix([said, text]))
            agreed, of = peer.agrees(ids, peer.tokens(args.prompt + ours["text"]))
            best, read = 1e9, 1e9
            for _ in range(args.rounds):
                best = min(best, peer.write(ids, 16)[1])
                peer.forget()
                read = min(read, peer.feed([(i * 7919) % L.llama_vocab_n_tokens(peer.vocab) for i in range(args.long)]))
            print(f"{file}: {same} of {len(text)} bytes of text the same, {agreed} of tutti's {of} tokens "
                  f"are llama.cpp's, too; llama.cpp {1 / best:.1f} tokens/s, a prompt of {args.long} "
                  f"{args.long / read:.0f} tokens/s", flush=True)
            if args.shape:
                b = bench(args, dtype, weights)
                print(f"  tutti {dtype}{' --weights ' + weights if weights else ''}: {b['tokens_per_s']:.1f} tokens/s "
                      f"({100 * b['bandwidth_share']:.0f} % of reading), prompt {b['prompt_tokens_per_s']:.0f} "
                      f"({100 * b['prompt_share']:.0f} % of training's forward pass)", flush=True)


if __name__ == "__main__":
    main()
