"""A tuning record that this build can use, for tests of the tuner's files."""
import json

from polyhead import _core


def space(flags):
    return json.loads(_core.tiling_space((flags + " --target x86-64-linux-avx2-fma-f16c").split()))


SPACE = space("--op sdpa --num-heads 4 --head-dim 32")
LINEAR = space("--op linear --embed-dim 32 --out-features 32")
VERSIONS = {f["frame"]: f["schedule_version"] for s in (SPACE, LINEAR) for f in s["targets"][0]["frames"]}


def record(**changes):
    made = {"problem": SPACE["problem"], "target_class": "x86-64-avx2", "min_seq_len_q": 17, "max_seq_len_q": 0, "frame": "query_lanes",
            "tiling": "q_tile=16", "batch": 1, "seq_len_q": 512, "seq_len_kv": 512, "threads": 1, "median_ms": 2.0, "halide": SPACE["halide"],
            "date": "2026-01-01T00:00:00Z", "run": "a"}
    made.update(changes)
    return {"schedule_version": VERSIONS[made["frame"]], **made}
