// Every GPU kernel of the table against the float64 reference on the device of this run: awkward shapes and hostile inputs, tensors
// on the host and on the device, each variant forced in turn.
#include "gpu_tests.h"
#include "instruments/calls/problems.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

int shapes_per_kernel() {
    return emulated() ? (test_all() ? 10 : 4) : (test_all() ? 12 : 6);
}

void check_shapes(const polyhead_kernel &kernel, const TestDevice &device, Home home, uint64_t seed, const std::vector<Shape> &shapes) {
    const KernelSubject subject(kernel, seed, seed % 2 == 1, device.raw(), home);
    INFO("pack: " << subject.pack_status().message);
    REQUIRE(subject.pack_status().code == POLYHEAD_OK);
    for (const Shape &shape : shapes) {
        if (kernel.num_variants == 1 && !serves(kernel, shape.seq_len_q)) {
            continue;
        }
        CHECK(check_answer(subject.subject(), kernel.num_variants == 1 ? fitting(shape, kernel) : shape) == "");
    }
}

// Every second kernel, beginning with the given one. A program for a device is compiled once per process, which takes most of the time:
// so two tests that may run side by side do not compile the same kernels.
void check_half(size_t first) {
    const TestDevice &device = required_device();
    const std::vector<const Kernel *> kernels = kernels_for(device);
    const std::vector<Home> homes = homes_of(device);
    for (size_t i = first; i < kernels.size(); i += 2) {
        const Kernel &kernel = *kernels[i];
        uint64_t seed = text_seed(kernel.name);
        for (Home home : homes) {
            check_shapes(kernel, device, home, seed, awkward_shapes(call_problem(kernel), seed, shapes_per_kernel()));
            seed += 1000;
        }
        const std::vector<polyhead_kernel> variants = forced_variants(kernel, device);
        for (const polyhead_kernel &forced : variants.size() > 1 ? variants : std::vector<polyhead_kernel>()) {
            check_shapes(forced, device, homes[seed % homes.size()], seed,
                         awkward_shapes(call_problem(kernel), seed, shapes_per_kernel() + 3));
            seed += 1000;
        }
    }
}

} // namespace

TEST_CASE("gpu: every kernel and variant is right over awkward shapes, first half") {
    check_half(0);
}

TEST_CASE("gpu: every kernel and variant is right over awkward shapes, second half") {
    check_half(1);
}

TEST_CASE("gpu: every variant decodes one to sixteen queries") {
    const TestDevice &device = required_device();
    for (const Kernel *kernel : kernels_for(device)) {
        const Problem &p = kernel->problem;
        if (is_linear(p) || p.seq_len_q != 0 || (is_mha(p) && p.cross == 0)) {
            continue;
        }
        std::vector<Shape> shapes;
        for (int64_t rows : emulated() ? std::vector<int64_t>{1, 3, 16} : std::vector<int64_t>{1, 2, 3, 5, 8, 13, 16}) {
            shapes.push_back(plain_shape(p, 2, rows, 517, static_cast<uint64_t>(rows)));
            Shape &shape = shapes.back();
            if (p.kv_lengths != 0) {
                shape.lengths.assign(static_cast<size_t>(shape.batch), static_cast<int32_t>(shape.seq_len_kv / 2));
                shape.lengths[0] = static_cast<int32_t>(shape.seq_len_kv);
                shape.poison = true;
            }
        }
        for (const polyhead_kernel &forced : forced_variants(*kernel, device)) {
            check_shapes(forced, device, homes_of(device).back(), text_seed(kernel->name), shapes);
        }
    }
}

TEST_CASE("gpu: lengths of zero") {
    const TestDevice &device = required_device();
    static const int64_t sizes[][3] = {{0, 5, 5}, {2, 0, 5}, {2, 5, 0}}; // batch, queries, keys
    for (const Kernel *kernel : kernels_for(device)) {
        const Problem &p = kernel->problem;
        std::vector<Shape> shapes;
        for (const auto &size : sizes) {
            shapes.push_back(plain_shape(p, size[0], size[1], size[2], 3));
        }
        if (p.kv_lengths != 0) { // rows without keys beside others
            Shape shape = plain_shape(p, 3, 5, 9, 4);
            shape.lengths.assign(static_cast<size_t>(shape.batch), 0);
            shape.lengths.back() = static_cast<int32_t>(std::min<int64_t>(shape.seq_len_kv, 1));
            shape.poison = true;
            shapes.push_back(shape);
        }
        for (Home home : homes_of(device)) {
            check_shapes(*kernel, device, home, 5, shapes);
        }
    }
}

TEST_CASE("gpu: lengths on the device are clamped to 0 and the number of keys") {
    const TestDevice &device = required_device();
    int checked = 0;
    for (const Kernel *kernel : kernels_for(device)) {
        const Problem &p = kernel->problem;
        if ((p.kv_lengths == 0 && p.cache == 0) || homes_of(device).size() == 1) {
            continue;
        }
        polyhead_tensor polyhead_args::*const which = p.cache != 0 ? &polyhead_args::cache_lengths : &polyhead_args::kv_lengths;
        Shape shape = plain_shape(p, 3, 7, 19, 6);
        shape.lengths.assign(static_cast<size_t>(shape.batch), static_cast<int32_t>(shape.seq_len_kv)); // of a cache: as many as leave room
        shape.lengths[0] = 0;
        const KernelSubject good(*kernel, 7, false, device.raw(), Home::device);
        Subject wild = good.subject();
        wild.name += ", lengths out of range";
        wild.run = [&good, which](const polyhead_args &args) {
            polyhead_args changed = args;
            const int64_t batch = (args.*which).shape[0];
            std::vector<int32_t> lengths(static_cast<size_t>(batch), std::numeric_limits<int32_t>::max());
            lengths[0] = -5;
            changed.*which = TensorView(lengths.data(), DType::i32, {batch}, {1});
            return good.subject().run(changed);
        };
        CHECK(check_answer(wild, shape) == "");
        checked++;
    }
    check_some(checked, "key lengths out of range", device);
}
