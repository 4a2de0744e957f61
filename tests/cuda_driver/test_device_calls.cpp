// Instructions that Halide does not write: a pipeline asks for them by calls, and its code runs with the instructions in their place.
#include <cmath>
#include <map>
#include <random>
#include <stdexcept>

#include <Halide.h>

#include "compile/device_calls.h"
#include "compile/device_code.h"
#include "compile/lowering.h"
#include "generators/device_calls.h"
#include "machines/device_calls.h"
#include "test_program.h"

using namespace polyhead;
using namespace polyhead::test;
using gen::device_call;
using Halide::Expr;

namespace {

constexpr int lanes = 32, rows = 16, columns = 8, depth = 16, row_bytes = 32, bytes_of_a = rows * row_bytes;

// out = -2 * a * b, its first 8 rows divided by 4, in one block, whose warp copies both into shared memory. b lies as columns x depth.
// Columns from `present` on are not read.
struct Product {
    const gen::Product *product;
    Halide::ImageParam a{Halide::UInt(16), 2, "a"}, b{Halide::UInt(16), 2, "b"};
    Halide::Func out{"out"};
    int present = columns;
    bool reads_shared_of_halide = false, names_a_variable_slot = false;

    explicit Product(const gen::Product *given) : product(given) {}

    Halide::Module module() {
        using namespace Halide;
        Var x("x"), y("y"), lane("lane"), block("block");
        RDom r(0, 4, 0, lanes, 0, 1, "r");
        Func memory("memory"), loaded("loaded"), done("done"), own("own");
        for (ImageParam *p : {&a, &b}) {
            p->dim(0).set_bounds(0, depth);
            p->dim(1).set_bounds(0, p == &a ? rows : columns).set_stride(depth);
        }
        memory(lane, block) = device_call("shared_memory", {bytes_of_a + columns * row_bytes});
        const Expr base = memory(lane, block);
        own(lane, block) = lane * 3;
        const Expr column = lane % columns, half = lane / columns % 2;
        const Expr copy_a = device_call("copy", {base + lane * 16, a(lane % 2 * 8, lane / 2), 16});
        const Expr copy_b =
            device_call("copy", {base + bytes_of_a + column * row_bytes + half * 16, b(half * 8, column), select(column < present, 16, 0)});
        Expr here = device_call("wait", {0}, device_call("commit", {}, copy_a + copy_b));
        here = device_call("negate", {base + lane * 16}, here);
        here = device_call("barrier", {}, here + (reads_shared_of_halide ? own((lane + 1) % lanes, block) : Expr(0)));
        const Expr slot = names_a_variable_slot ? lane : Expr(0);
        here = device_call("load_matrices", {slot, base + lane % rows * row_bytes + lane / rows * 16, 0}, here);
        loaded(lane, block) = device_call("load_matrices", {4, base + column * row_bytes + half * 16, bytes_of_a}, here);
        const Expr sums = warp_product(*product, 4, 0, 4, 1, loaded(lane, block));
        // The references of the first 8 rows move from 0 to 2, because of one lane of 4; those of the others stay.
        const Expr references = device_call("set", {8, 0.0f}, device_call("set", {9, 0.0f}, warp_product(*product, 4, 0, 4, 0, sums)));
        done(lane, block) = device_call("raise", {4, 4, 8, 9, select(lane % 4 == 3, 1.5f, -1.0f), -1.0f}, references);
        out(x, y) = undef<float>();
        out(r.y % 4 * 2 + r.x % 2, r.y / 4 + r.x / 2 * 8) = got(r.x, done(r.y, r.z));
        out.bound(x, 0, columns).bound(y, 0, rows);
        out.output_buffer().dim(1).set_stride(columns);
        out.gpu_blocks(y);
        out.update().allow_race_conditions().reorder(r.x, r.y, r.z).unroll(r.x).gpu_threads(r.y).gpu_blocks(r.z);
        const LoopLevel thread(out, RVar(r.y.name()));
        for (Func f : {memory, loaded, done}) {
            f.compute_at(thread).store_in(MemoryType::Stack);
        }
        if (reads_shared_of_halide) {
            own.compute_at(out, RVar(r.z.name())).store_in(MemoryType::GPUShared).gpu_threads(lane);
        }
        const gen::Lowering lowering;
        Pipeline pipeline(out);
        gen::keep_lowered(pipeline);
        const Target target =
            get_host_target().with_feature(Target::CUDA).with_feature(Target::CUDACapability80).with_feature(Target::NoRuntime);
        const Module made = pipeline.compile_to_module({a, b}, "product", target);
        return gen::with_device_instructions(made, lowering.statement());
    }

    // Sum i of a lane, one of four slots.
    static Expr got(const Expr &i, const Expr &after) {
        Expr value = device_call("get", {7}, after);
        for (int slot = 2; slot >= 0; slot--) {
            value = Halide::select(i == slot, device_call("get", {4 + slot}, after), value);
        }
        return value;
    }
};

std::string code_of(const Halide::Module &module) {
    for (const Halide::Buffer<> &buffer : module.buffers()) {
        const std::string text = gen::device_bytes(buffer);
        if (text.find(".entry") != std::string::npos && text.find("polyhead_") != std::string::npos) {
            return text;
        }
    }
    return "";
}

float value_of(uint16_t bits, bool bf16) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return bf16 ? value : std::ldexp(static_cast<float>(1024 + (bits & 1023)), ((bits >> 10) & 31) - 25) * (bits >> 15 ? -1.0f : 1.0f);
}

std::vector<uint16_t> some_numbers(size_t count, bool bf16, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<uint16_t> values(count);
    for (uint16_t &value : values) { // of both signs, 0.25 to 4
        value = static_cast<uint16_t>((bf16 ? 0x3e80 + random() % 512 : 0x3400 + random() % 4096) | (random() % 2 << 15));
    }
    return values;
}

// Runs the only kernel of this PTX that writes `out`.
void run_product(const std::string &ptx, const std::vector<uint16_t> &a, const std::vector<uint16_t> &b, int shared,
                 std::vector<float> *out) {
    CUmodule module = nullptr;
    REQUIRE(cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS);
    const size_t at = ptx.rfind(".entry ") + 7;
    const std::string name = ptx.substr(at, ptx.find('(', at) - at);
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, name.c_str()) == CUDA_SUCCESS);
    CUdeviceptr pointers[] = {upload(std::vector<float>(rows * columns, 0.0f)), upload(a), upload(b)};
    void *parameters[] = {pointers, pointers + 1, pointers + 2};
    const CUresult result = cuLaunchKernel(function, 1, 1, 1, lanes, 1, 1, static_cast<unsigned>(shared), nullptr, parameters, nullptr);
    INFO(polyhead_cuda_driver_error());
    REQUIRE(result == CUDA_SUCCESS);
    *out = download<float>(pointers[0], rows * columns);
}

// The sentence that an exception has, or "".
template <class F> std::string refusal(const F &function) {
    try {
        function();
    } catch (const std::runtime_error &error) {
        return error.what();
    }
    return "";
}

// PTX of one kernel that makes one call, as LLVM writes it.
std::string ptx_with(const std::string &name, const std::vector<std::string> &arguments, const std::string &before = "") {
    std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n\n.extern .func  (.param .b32 func_retval0) polyhead_device_" +
                       name + "\n(\n)\n;\n.visible .entry kernel(\n)\n{\n\t.reg .b32 \t%r<9>;\n" + before + "\t{ // callseq 0, 0\n";
    std::string list;
    for (size_t i = 0; i < arguments.size(); i++) {
        const std::string parameter = "param" + std::to_string(i);
        text += "\t.param .b32 \t" + parameter + ";\n\tst.param.b32 \t[" + parameter + "], " + arguments[i] + ";\n";
        list += (i ? ", " : "") + parameter;
    }
    return text + "\t.param .b32 \tretval0;\n\tcall.uni (retval0), polyhead_device_" + name + ", (" + list +
           ");\n\tld.param.b32 \t%r1, [retval0];\n\t} // callseq 0\n\tst.global.b32 \t[%rd1], %r1;\n\tret;\n}\n";
}

} // namespace

TEST_CASE("device calls: a product of matrices by copies, fragments and an instruction of the warp", "[cuda_driver]") {
    for (const int dtype : {POLYHEAD_F16, POLYHEAD_BF16}) {
        for (const int present : {columns, 5}) {
            const Fresh fresh;
            const bool bf16 = dtype == POLYHEAD_BF16;
            Product product(gen::warp_product_of(dtype, 80));
            product.present = present;
            const std::string ptx = code_of(product.module());
            INFO(ptx);
            REQUIRE(ptx.find(product.product->name) != std::string::npos);
            REQUIRE(ptx.find(gen::device_call_prefix) == std::string::npos);
            REQUIRE(ptx.find(".maxntid 32") != std::string::npos);
            // Elements that are named for their address are not loaded.
            REQUIRE(ptx.find("ld.global") == std::string::npos);
            const std::vector<uint16_t> a = some_numbers(rows * depth, bf16, 1), b = some_numbers(columns * depth, bf16, 2);
            std::vector<float> out;
            run_product(ptx, a, b, bytes_of_a + columns * row_bytes, &out);
            REQUIRE(polyhead_cuda_driver_executed("mma") == 2);
            for (int row = 0; row < rows; row++) {
                for (int column = 0; column < columns; column++) {
                    double sum = 0, size = 0;
                    for (int k = 0; column < present && k < depth; k++) {
                        const double x = value_of(a[static_cast<size_t>(row * depth + k)], bf16),
                                     y = value_of(b[static_cast<size_t>(column * depth + k)], bf16);
                        sum += x * y;
                        size += std::fabs(x * y);
                    }
                    const double factor = 2 / (row < 8 ? 4.0 : 1.0);
                    REQUIRE(std::fabs(out[static_cast<size_t>(row * columns + column)] + factor * sum) <= factor * 32 * 0x1p-24 * size);
                }
            }
        }
    }
}

TEST_CASE("device calls: the launch gives the shared memory, and only where Halide has none of its own", "[cuda_driver]") {
    Product product(gen::warp_product_of(POLYHEAD_F16, 80));
    std::ostringstream printed;
    const Halide::Module module = product.module();
    for (const Halide::Internal::LoweredFunc &function : module.functions()) {
        printed << function.body;
    }
    REQUIRE(printed.str().find("32, 1, 1, 768,") != std::string::npos); // threads, shared bytes
    Product other(gen::warp_product_of(POLYHEAD_F16, 80));
    other.reads_shared_of_halide = true;
    REQUIRE(refusal([&] { other.module(); }).find("has shared memory of Halide's own") != std::string::npos);
    Product variable(gen::warp_product_of(POLYHEAD_F16, 80));
    variable.names_a_variable_slot = true;
    REQUIRE(refusal([&] { variable.module(); }).find("load_matrices: argument 0 is %r") != std::string::npos);
}

TEST_CASE("device calls: what is refused", "[cuda_driver]") {
    const auto refused = [](const std::string &ptx, const gen::CallCounts &counts) {
        return refusal([&] { gen::with_instructions(ptx, counts, {}); });
    };
    const std::string barrier = ptx_with("barrier", {"0"});
    REQUIRE(refused(barrier, {{"barrier", 1}}).empty());
    REQUIRE(refused(barrier, {{"barrier", 2}}) == "device code: barrier is called 1 times, expected 2 as in the lowered statement");
    REQUIRE(refused(barrier, {}) == "device code: barrier is called 1 times, expected 0 as in the lowered statement");
    REQUIRE(refused(barrier, {{"barrier", 1}, {"commit", 1}}).find("commit is called 0 times") != std::string::npos);
    REQUIRE(refused(ptx_with("teleport", {"0"}), {{"teleport", 1}}) == "device code: the call teleport is not known");
    REQUIRE(refused(ptx_with("barrier", {"0", "0"}), {{"barrier", 1}}) == "device code: barrier has 2 arguments, expected 1");
    REQUIRE(refused(ptx_with("wait", {"%r2", "0"}), {{"wait", 1}}).find("wait: argument 0 is %r2, expected a number") != std::string::npos);
    REQUIRE(refused(ptx_with("wait", {"-1", "0"}), {{"wait", 1}}).find("argument 0 is -1") != std::string::npos);
    // A register that is written twice holds no number of the program.
    const std::string once = "\tmov.b32 \t%r2, 3;\n";
    REQUIRE(refused(ptx_with("wait", {"%r2", "0"}, once), {{"wait", 1}}).empty());
    REQUIRE(!refused(ptx_with("wait", {"%r2", "0"}, once + once), {{"wait", 1}}).empty());
    REQUIRE(refused(ptx_with("zero", {"0", "6", "0"}), {{"zero", 1}}).find("expected a multiple of 4") != std::string::npos);
    REQUIRE(refused(ptx_with("copy", {"%r2", "%r3", "16", "0"}), {{"copy", 1}}).find("expected an element of a tensor") !=
            std::string::npos);
    const std::string several = "\tld.global.v2.b16 \t{%r3, %r4}, [%rd2];\n";
    REQUIRE(refused(ptx_with("copy", {"%r2", "%r3", "16", "0"}, several), {{"copy", 1}}).find("expected an element") != std::string::npos);
    // A call in another form than LLVM's is left over.
    std::string odd = barrier;
    odd.replace(odd.find("{ // callseq"), 12, "{ /* callseq");
    REQUIRE(refused(odd, {}).find("the call polyhead_device_barrier is left over") != std::string::npos);
}

TEST_CASE("device calls: an address is that of the load, also where the registers change before the call", "[cuda_driver]") {
    const std::string load = "\tld.global.nc.b16 \t%r3, [%rd2+-16];\n\tadd.s64 \t%rd2, %rd2, 32;\n";
    const std::string text = gen::with_instructions(ptx_with("copy", {"%r2", "%r3", "16", "0"}, load), {{"copy", 1}}, {}).text;
    REQUIRE(text.find("ld.global") == std::string::npos);
    const size_t address = text.find("add.s64 %polyhead_a0, %rd2, -16;"), changed = text.find("add.s64 \t%rd2, %rd2, 32;"),
                 copy = text.find("cp.async.cg.shared.global [%r2], [%polyhead_a0], 16, 16;");
    REQUIRE((address < changed && changed < copy && copy != std::string::npos));
    const std::string read = ptx_with("copy", {"%r2", "%r3", "16", "0"}, load + "\tadd.s32 \t%r4, %r3, 1;\n");
    REQUIRE(refusal([&] { gen::with_instructions(read, {{"copy", 1}}, {}); }) ==
            "device code: the element in %r3, of which a call takes the address, is read besides");
}
