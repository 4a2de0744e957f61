"""Options of the Python package: every keyword has a rule, a wrong value is refused by name, and what is given is never half read."""
import copy
import inspect
import os
import pickle
import sys
import types
import unittest

import numpy as np

import polyhead
from polyhead import options
from tier import sampled_cases

X = np.random.default_rng(1).standard_normal((1, 2, 5, 8)).astype(np.float32)
TABLE = np.ones((9, 4), np.float32)


class Broken:
    """Looks like an array and is none."""

    shape, dtype = None, "float32"

    def __dlpack__(self, **_):
        raise ValueError("no")


class Hollow:
    shape, dtype = (1, 2, 5, 8), np.dtype("float32")


HOSTILE = ["text", b"bytes", 7, 1.5, object(), [1], [[1, [2]]], {"a": 1}, (1,), Broken(), Hollow(), lambda x: x, True, np.array(["a"]), np.array(1j), np.array(["a", "mean"])]


def layer():
    made = polyhead.MultiheadAttention(8, 2)
    random = np.random.default_rng(2)
    made.load_state_dict({name: random.standard_normal(shape).astype(np.float32) for name, shape in made._shapes(False).items()})
    return made


def cache():
    return np.zeros((1, 2, 16, 8), np.float32), np.zeros((1, 2, 16, 8), np.float32)


# By function: how it is called with one keyword replaced.
CALLS = {
    "sdpa": (polyhead.sdpa, lambda: dict(query=X, key=X, value=X)),
    "append": (polyhead.append, lambda: dict(zip(("cache_key", "cache_value"), cache()), key=X, value=X, lengths=[0])),
    "copy_page": (polyhead.copy_page, lambda: dict(zip(("cache_key", "cache_value"), cache()), source=0, target=0)),
    "rope": (polyhead.rope, lambda: dict(input=X, cos=TABLE, sin=TABLE)),
    "rope_sections_of": (polyhead.rope_sections_of, lambda: dict(config={"head_dim": 8})),
    "normalize": (polyhead.normalize, lambda: dict(input=X, norm="rms", epsilon=1e-6)),
    "rope_tables": (polyhead.rope_tables, lambda: dict(config={"head_dim": 8}, rows=3)),
    "merge_states": (polyhead.merge_states, lambda: dict(parts=[(X, np.zeros((1, 2, 5), np.float32))])),
    "sdpa_backward": (polyhead.sdpa_backward, lambda: dict(grad_out=X, query=X, key=X, value=X, out=X, lse=np.zeros((1, 2, 5), np.float32))),
    "linear_backward": (polyhead.linear_backward, lambda: dict(grad_out=X, input=X, weight=np.ones((8, 8), np.float32))),
    "compile": (polyhead.compile, lambda: dict(num_heads=1, head_dim=4, op="sdpa")),
    "MultiheadAttention": (polyhead.MultiheadAttention, lambda: dict(embed_dim=8, num_heads=2)),
    "__call__": (layer(), lambda: dict(query=np.ones((1, 3, 8), np.float32))),
}
LEFT_OUT = {"self", "problem"}


def keywords(function):
    return [name for name in inspect.signature(function).parameters if name not in LEFT_OUT]


class Options(unittest.TestCase):
    def test_every_keyword_has_a_rule(self):
        for name, (function, _) in CALLS.items():
            for keyword in keywords(function):
                self.assertIsInstance(options.rule_of(name, keyword), options.Rule, name + "." + keyword)
        public = {name for name in polyhead.__all__ if inspect.isfunction(getattr(polyhead, name))}
        checked = set(CALLS) | {"explain", "clear_cache"}  # explain takes what sdpa takes
        self.assertEqual(public - checked - {"num_threads", "set_num_threads", "device_count", "wait", "set_wait", "from_packed"}, set())

    def refusal(self, function, arguments):
        """The sentence, or None when the call is right."""
        try:
            function(**arguments)
        except (polyhead.Error, TypeError) as error:
            self.assertNotIn("incompatible function arguments", str(error))
            self.assertEqual(str(error).count("\n"), 0)
            return str(error)
        return None

    def test_hostile_values(self):
        accepted = 0
        for name, (function, right) in CALLS.items():
            self.assertIsNone(self.refusal(function, right()), name)
            for keyword in keywords(function):
                if name in ("compile", "MultiheadAttention") and keyword == "op":
                    continue
                for value in HOSTILE + [None]:
                    with self.subTest(function=name, keyword=keyword, value=options.found_text(value)):
                        sentence = self.refusal(function, {**right(), keyword: value})
                        accepted += sentence is None
                        if sentence is not None and not options.rule_of(name, keyword).takes(value):
                            self.assertIn(keyword + ": found", sentence)
        self.assertGreater(accepted, 20)

    def test_wrong_words(self):
        for change, part in ((dict(is_causal="bottom_right"), "is_causal: found 'bottom_right', expected True or False"),
                             (dict(causal_alignment=None), "causal_alignment: found None, expected top_left or bottom_right"),
                             (dict(causal_alignment="botom_right"), "did you mean bottom_right?"),
                             (dict(return_weights="means"), "return_weights: found 'means', expected True, False or 'mean'; did you mean mean?"),
                             (dict(return_scores="logit"), "did you mean logits?"), (dict(layout="bhsdx"), "did you mean bhsd?"),
                             (dict(is_causal=1), "is_causal: found 1"), (dict(softcap="1"), "softcap: found '1', expected a number"),
                             (dict(window=(1.5, 2)), "window: found tuple"), (dict(scale=True), "scale: found True"), (dict(rope=(TABLE,)), "rope: found tuple"),
                             (dict(out=[1]), "out: found list, expected an array"), (dict(device=3), "device: found 3")):
            with self.subTest(str(change)):
                self.assertIn(part, self.refusal(polyhead.sdpa, {"query": X, "key": X, "value": X, **change}) or "accepted")

    def test_refusals_name_what_the_caller_wrote(self):
        x = np.ones((1, 2, 5, 8), np.float32)
        for words, begins in (({"attn_mask": np.ones((3, 5, 5), bool)}, "attn_mask: extent 3 of dimension 0"), ({"bias": np.ones((2, 2), np.float32)}, "bias: extent 2"),
                              ({"scale": float("nan")}, "scale: value nan"), ({"window": (-3, 2)}, "window: value -3"), ({"window": (2, -3)}, "window: value -3"),
                              ({"kv_lengths": [7]}, "kv_lengths: value 7")):
            with self.assertRaises(polyhead.Error) as found:
                polyhead.sdpa(x, x, x, **words)
            self.assertTrue(str(found.exception).startswith(begins), found.exception)
        with self.assertRaisesRegex(polyhead.Error, "^head_dim: missing, expected 1 to 576"):
            polyhead.compile("sdpa", num_heads=2)

    def test_wrong_problems(self):
        for change, part in ((dict(causal="bottom"), "causal: found 'bottom', expected none, bottom_right or top_left or None; did you mean bottom_right?"),
                             (dict(runtime="x"), "compile() has no option runtime"), (dict(num_head=3), "did you mean num_heads?"),
                             (dict(kv_lengths="yes"), "kv_lengths: found 'yes', expected True or False"), (dict(head_dim="8"), "head_dim: found '8'"),
                             (dict(emit="stmt"), "compile() has no option emit"), (dict(list_tilings=True), "compile() has no option"),
                             (dict(dtype="f33"), "did you mean f32?"), (dict(dtype=X), "dtype: found ndarray"), (dict(seq_len_q=4.0), "seq_len_q: found 4.0"), (dict(causal=""), "causal: found ''")):
            with self.subTest(str(change)):
                self.assertIn(part, self.refusal(polyhead.compile, {"num_heads": 1, "head_dim": 4, **change}) or "accepted")

    def test_numpy_scalars_are_numbers(self):
        self.assertIsNone(self.refusal(polyhead.sdpa, dict(query=X, key=X, value=X, is_causal=np.bool_(True), scale=np.float32(1), window=(np.int64(1), 2))))
        self.assertIsNone(self.refusal(polyhead.compile, dict(num_heads=np.int32(1), head_dim=np.int64(4), seq_len_q=np.uint8(1), kv_lengths=np.bool_(False))))

    def test_pools(self):
        pool = polyhead.PagePool(4)
        for call in (lambda: polyhead.PagePool("4"), lambda: polyhead.PagePool(2**40), lambda: pool.take(1.5), lambda: pool.take(True), lambda: pool.share("ab"),
                     lambda: pool.share(7), lambda: pool.release([0.5]), lambda: pool.users("x"), lambda: polyhead.set_num_threads("2"),
                     lambda: polyhead.set_wait(1.5)):
            with self.assertRaises((polyhead.Error, TypeError)) as caught:
                call()
            self.assertIn(": found ", str(caught.exception))
        pages = pool.take(np.int64(2))
        pool.share(np.array(pages))
        self.assertEqual([pool.users(page) for page in pages], [2, 2])


class Copies(unittest.TestCase):
    def test_layers(self):
        first, x = layer(), np.random.default_rng(3).standard_normal((2, 4, 8)).astype(np.float32)
        out = first(x)[0]
        for other in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
            self.assertEqual(other(x)[0].tobytes(), out.tobytes())
        other.load_state_dict({name: np.zeros(shape, np.float32) for name, shape in other._shapes(False).items()})
        self.assertEqual(first(x)[0].tobytes(), out.tobytes())
        self.assertEqual(float(abs(other(x)[0]).max()), 0)

    def test_kernels(self):
        first = polyhead.compile(num_heads=2, head_dim=8, causal="top_left", expression="score = score * 0.5", tiling="frame=query_lanes")
        out = first(query=X, key=X, value=X)
        for other in (copy.copy(first), copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
            self.assertEqual((other.problem, other.target), (first.problem, first.target))
            self.assertEqual(other(query=X, key=X, value=X).tobytes(), out.tobytes())

    def test_what_cannot_be_copied(self):
        linear = polyhead.compile("linear", embed_dim=4, out_features=4)
        for thing in (polyhead.PagePool(2), linear.pack(out_proj=np.ones((4, 4), np.float32))):
            for way in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.assertRaises(TypeError):
                    way(thing)


class Tensor:
    """What a tensor of PyTorch says of itself."""

    def __init__(self, array, **said):
        self.array, self.said = array, {"requires_grad": False, "is_neg": False, "is_conj": False, **said}

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    requires_grad = property(lambda self: self.said["requires_grad"])

    def is_neg(self):
        return self.said["is_neg"]

    def is_conj(self):
        return self.said["is_conj"]

    def resolve_neg(self):
        return Tensor(-self.array)

    def __dlpack__(self, **words):
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Torch(unittest.TestCase):
    def setUp(self):
        self.before = sys.modules.get("torch")
        self.recorded = True
        if self.before is None:
            sys.modules["torch"] = types.SimpleNamespace(is_grad_enabled=lambda: self.recorded, Tensor=type("Tensor", (), {}))
            self.addCleanup(sys.modules.pop, "torch")

    def test_gradients(self):
        if self.before is not None:
            self.skipTest("PyTorch is loaded")
        tensor = Tensor(X, requires_grad=True)
        for name in ("query", "key", "value"):
            with self.assertRaisesRegex(TypeError, name + ": found a tensor that requires gradients"):
                polyhead.sdpa(**{**dict(query=X, key=X, value=X), name: tensor})
        self.recorded = False
        self.assertEqual(polyhead.sdpa(tensor, X, X).tobytes(), polyhead.sdpa(X, X, X).tobytes())
        self.recorded = True
        linear = polyhead.compile("linear", embed_dim=8, out_features=8)
        weight = np.eye(8, dtype=np.float32)
        packed = [linear.pack(out_proj=source) for source in (weight, Tensor(weight, requires_grad=True))]
        rows = X[0, 0]
        self.assertEqual(*[linear(input=rows, weights=one).tobytes() for one in packed])

    def test_the_negative_bit(self):
        tensor = Tensor(X, is_neg=True)
        self.assertEqual(polyhead.sdpa(tensor, X, X).tobytes(), polyhead.sdpa(-X, X, X).tobytes())
        with self.assertRaisesRegex(TypeError, "out: found a tensor whose memory holds other numbers"):
            polyhead.sdpa(X, X, X, out=Tensor(np.empty_like(X), is_neg=True))


class Streams(unittest.TestCase):
    def test_devices_of_streams_that_are_gone(self):
        from polyhead import _arrays, _core

        opened, real, kept = [], _core.Device, dict(_arrays._devices)
        _arrays._devices.clear()
        try:
            _core.Device = lambda name, stream: opened.append(stream) or object()
            for stream in range(1000):
                _arrays.open_device("cuda", stream)
            self.assertLessEqual(len(_arrays._devices), _arrays._DEVICES_KEPT)
            _arrays.open_device("cuda", 999)
            self.assertEqual(len(opened), 1000)
        finally:
            _core.Device = real
            _arrays._devices.clear()
            _arrays._devices.update(kept)


class Paths(unittest.TestCase):
    def test_bytes_that_are_no_utf_8(self):
        import tempfile

        folder = os.path.join(os.fsencode(tempfile.mkdtemp()), b"gr\xf6\xdfe %s")
        kernel = polyhead.compile("linear", embed_dim=4, out_features=4)
        for directory in (folder, os.fsdecode(folder)):
            for path in kernel.export(directory, "k"):
                self.assertTrue(os.path.exists(path))
        with self.assertRaises(polyhead.Error) as caught:
            polyhead.compile("linear", embed_dim=4, out_features=4, tuned=os.path.join(folder, b"none.json"))
        self.assertIn("none.json", str(caught.exception))

    def test_control_characters_leave_one_line(self):
        for options in (dict(tuned="no\r\nwhere"), dict(tiling="q\ntile=1"), dict(target="x86\n64")):
            with self.assertRaises(polyhead.Error) as caught:
                polyhead.compile("linear", embed_dim=4, out_features=4, **options)
            self.assertNotRegex(str(caught.exception), "[\x00-\x1f\x7f]")


load_tests = sampled_cases(__file__, 3)

if __name__ == "__main__":
    unittest.main()
