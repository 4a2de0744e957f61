// Structs of earlier and later versions of the headers: fields that are missing are absent, fields that are unknown must be 0.
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "runtime_calls.h"
#include "runtime_fake_device.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// A struct as a program with other headers has it: so many bytes more or fewer, on the heap, so that a sanitizer sees where it ends.
template <class T> class Resized {
public:
    Resized(const T &known, std::ptrdiff_t more) : bytes_(sizeof(T) + static_cast<size_t>(more)), memory_(new char[bytes_]()) {
        std::memcpy(memory_.get(), &known, std::min(bytes_, sizeof(T)));
        const auto size = static_cast<uint32_t>(bytes_);
        std::memcpy(memory_.get(), &size, sizeof size);
    }
    const T *get() const { return reinterpret_cast<const T *>(memory_.get()); }
    void put_last(char value) { memory_[bytes_ - 1] = value; }

private:
    size_t bytes_;
    std::unique_ptr<char[]> memory_;
};

const std::string unknown_fields =
    " has fields that polyhead " + std::string(polyhead_version()) + " does not know, expected 0 in them: link a later one";

std::string bytes_of(size_t size) {
    return " of " + std::to_string(size) + " bytes";
}

// The table of a kernel whose structs all have 8 bytes more.
class LaterKernel {
public:
    explicit LaterKernel(const FakeKernel &fake) {
        constexpr size_t variant_bytes = sizeof(polyhead_variant) + 8, problem_end = offsetof(polyhead_kernel, name);
        variants_.resize(2 * variant_bytes);
        for (size_t i = 0; i < 2; i++) {
            std::memcpy(variants_.data() + i * variant_bytes, &fake.variant, sizeof(polyhead_variant));
        }
        table_.resize(sizeof(polyhead_kernel) + 16);
        polyhead_kernel known = fake.table;
        known.sizes = {static_cast<uint32_t>(table_.size()), sizeof(polyhead_problem) + 8, variant_bytes, sizeof(polyhead_declaration) + 8};
        known.problem.size += 8;
        known.variants = reinterpret_cast<const polyhead_variant *>(variants_.data());
        known.num_variants = 2;
        std::memcpy(table_.data(), &known, problem_end);
        std::memcpy(table_.data() + problem_end + 8, &known.name, sizeof known - problem_end);
    }
    const polyhead_kernel *get() const { return reinterpret_cast<const polyhead_kernel *>(table_.data()); }
    void variant_needs_more(size_t i) { variants_[(i + 1) * (sizeof(polyhead_variant) + 8) - 8] = 1; }
    void problem_has_more() { table_[offsetof(polyhead_kernel, name)] = 1; }

private:
    std::vector<char> table_, variants_; // both from operator new: aligned
};

} // namespace

TEST_CASE("sizes: arguments of other headers", "[runtime]") {
    SdpaCall call;
    const auto run = [&](const Resized<polyhead_args> &args) { return polyhead_run(&call.fake.table, args.get()); };
    const std::ptrdiff_t reserved = std::ptrdiff_t(offsetof(polyhead_args, scratch)) - std::ptrdiff_t(sizeof(polyhead_args));
    CHECK(run({call.args, reserved}).code == POLYHEAD_OK);
    CHECK(run({call.args, reserved + 8}).code == POLYHEAD_OK);
    Resized<polyhead_args> later(call.args, 8);
    CHECK(run(later).code == POLYHEAD_OK);
    CHECK(call.fake.calls == 3);
    later.put_last(1);
    CHECK(std::string(run(later).message) == "arguments: polyhead_args" + bytes_of(sizeof(polyhead_args) + 8) + unknown_fields);
    const std::string expected = " bytes, expected " + std::to_string(sizeof(polyhead_args)) +
                                 ": begin them with polyhead_args_of() and compile with the headers of polyhead ";
    for (const std::ptrdiff_t more : {reserved - 8, std::ptrdiff_t(1) << 17}) {
        const Resized<polyhead_args> wrong(call.args, more);
        const polyhead_status status = run(wrong);
        CHECK(status.code == POLYHEAD_UNSUPPORTED);
        CHECK(std::string(status.message) ==
              "arguments: polyhead_args of " + std::to_string(wrong.get()->size) + expected + polyhead_version());
    }
    CHECK(call.fake.calls == 3);
}

TEST_CASE("sizes: a table of a later generator", "[runtime]") {
    SdpaCall call;
    LaterKernel kernel(call.fake);
    const auto run = [&] { return polyhead_run(kernel.get(), &call.args); };
    CHECK(run().code == POLYHEAD_OK);
    CHECK(call.fake.calls == 1);
    SECTION("facts of a variant that this library does not know") {
        kernel.variant_needs_more(0);
        CHECK(run().code == POLYHEAD_OK); // the second one
        char text[1024];
        CHECK(polyhead_explain(kernel.get(), &call.args, text, sizeof text).code == POLYHEAD_OK);
        CHECK_THAT(text,
                   Catch::Contains("not fake_variant: has facts that polyhead " + std::string(polyhead_version()) + " does not know\n"));
        kernel.variant_needs_more(1);
        CHECK(run().code == POLYHEAD_UNSUPPORTED);
        CHECK(call.fake.calls == 2);
    }
    SECTION("a field of the problem that this library does not know") {
        kernel.problem_has_more();
        CHECK(std::string(run().message) == "kernel fake: polyhead_problem" + bytes_of(sizeof(polyhead_problem) + 8) + unknown_fields);
    }
}

TEST_CASE("sizes: a table of an earlier generator", "[runtime]") {
    SdpaCall call;
    FakeDevice newer(Api::cuda, 120);
    call.args.device = &newer;
    call.fake.variant.api = POLYHEAD_CUDA;
    call.fake.variant.capability = 90;
    for (const size_t end : {offsetof(polyhead_variant, min_group_size), offsetof(polyhead_variant, capability_exact)}) {
        std::vector<char> earlier; // what follows a variant is the next one, and not 0
        for (int i = 0; i < 2; i++) {
            const char *const first = reinterpret_cast<const char *>(&call.fake.variant);
            earlier.insert(earlier.end(), first, first + end);
        }
        polyhead_kernel table = call.fake.table;
        table.sizes.variant = static_cast<uint32_t>(end);
        table.variants = reinterpret_cast<const polyhead_variant *>(earlier.data());
        CHECK(polyhead_run(&table, &call.args).code == POLYHEAD_OK); // neither exact, nor for few blocks, nor for a group size
        const Kernel kernel(table);
        const Kernel *const set[] = {&kernel};
        CHECK_THAT(explain(set, 1, table.problem), Catch::Contains("fake_variant: needs a device, cuda 9.0 or newer\n"));
    }
    CHECK(call.fake.calls == 2);
}

TEST_CASE("sizes: a table that is none", "[runtime]") {
    SdpaCall call;
    const std::string sentence = "kernel: a table without the sizes of its structs, expected POLYHEAD_SIZES: generate it with polyhead " +
                                 std::string(polyhead_version());
    uint32_t polyhead_sizes::*const sizes[] = {&polyhead_sizes::kernel, &polyhead_sizes::variant, &polyhead_sizes::declaration};
    for (const auto size : sizes) {
        call.fake.table.sizes = POLYHEAD_SIZES;
        call.fake.table.sizes.*size /= 2;
        call.refused(POLYHEAD_UNSUPPORTED, sentence);
    }
    call.fake.table.sizes = POLYHEAD_SIZES;
    call.fake.table.sizes.problem = 1 << 20;
    call.refused(POLYHEAD_UNSUPPORTED, sentence);
}

TEST_CASE("sizes: weights, caches and problems of other headers", "[runtime]") {
    MhaCall layer(MhaCall::cross());
    std::vector<float> memory(1 << 16);
    polyhead_weights packed{};
    const Resized<polyhead_weight_tensors> none(polyhead_weight_tensors_of(), 8);
    void *const aligned = reinterpret_cast<void *>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    CHECK(std::string(polyhead_pack(&layer.fake.table, none.get(), aligned, &packed).message).find("query: missing") == 0);
    constexpr int later = -2 * int(sizeof(polyhead_tensor)); // gate and gate_bias, which the lowest version does not have
    const Resized<polyhead_weight_tensors> earlier(polyhead_weight_tensors_of(), later);
    CHECK(std::string(polyhead_pack(&layer.fake.table, earlier.get(), aligned, &packed).message).find("query: missing") == 0);
    const Resized<polyhead_weight_tensors> cut(polyhead_weight_tensors_of(), later - 8);
    CHECK_THAT(polyhead_pack(&layer.fake.table, cut.get(), aligned, &packed).message,
               Catch::Contains("begin them with polyhead_weight_tensors_of()"));
    const Kernel kernel(layer.fake.table);
    const Kernel *const set[] = {&kernel};
    Resized<Problem> wanted(layer.fake.table.problem, 8);
    CHECK(find_kernel(set, 1, *wanted.get()) == &kernel);
    wanted.put_last(1);
    CHECK(find_kernel(set, 1, *wanted.get()) == nullptr);
    CHECK(explain(set, 1, *wanted.get()) == "problem: polyhead_problem" + bytes_of(sizeof(Problem) + 8) + unknown_fields + "\n");
}
