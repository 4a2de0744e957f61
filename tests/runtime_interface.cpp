// What kernels and runtime share, against Halide's header: layouts, codes, and the functions that assertions of kernels call.
#include <cstddef>
#include <string>

#include <HalideRuntime.h>

#include "../runtime/call/call_context.h"
#include "../runtime/kernel_interface.h"
#include "support/catch.h"

using namespace polyhead;
using runtime::CallContext;
using runtime::ElementType;
using runtime::KernelBuffer;
using runtime::KernelDimension;

namespace {

#define SAME_PLACE(ours, theirs, member) static_assert(offsetof(ours, member) == offsetof(theirs, member), "of " #member)
static_assert(sizeof(KernelBuffer) == sizeof(halide_buffer_t), "of a tensor");
SAME_PLACE(KernelBuffer, halide_buffer_t, device);
SAME_PLACE(KernelBuffer, halide_buffer_t, device_interface);
SAME_PLACE(KernelBuffer, halide_buffer_t, host);
SAME_PLACE(KernelBuffer, halide_buffer_t, flags);
SAME_PLACE(KernelBuffer, halide_buffer_t, type);
SAME_PLACE(KernelBuffer, halide_buffer_t, dimensions);
SAME_PLACE(KernelBuffer, halide_buffer_t, dim);
static_assert(sizeof(KernelDimension) == sizeof(halide_dimension_t), "of a dimension");
SAME_PLACE(KernelDimension, halide_dimension_t, min);
SAME_PLACE(KernelDimension, halide_dimension_t, extent);
SAME_PLACE(KernelDimension, halide_dimension_t, stride);
SAME_PLACE(KernelDimension, halide_dimension_t, flags);
static_assert(sizeof(ElementType) == sizeof(halide_type_t), "of an element");
SAME_PLACE(ElementType, halide_type_t, code);
SAME_PLACE(ElementType, halide_type_t, bits);
SAME_PLACE(ElementType, halide_type_t, lanes);
static_assert(int(ElementType::signed_integer) == int(halide_type_int) && int(ElementType::unsigned_integer) == int(halide_type_uint) &&
                  int(ElementType::real) == int(halide_type_float),
              "kinds of elements");
static_assert(KernelBuffer::newer_on_host == halide_buffer_flag_host_dirty &&
                  KernelBuffer::newer_on_device == halide_buffer_flag_device_dirty,
              "flags");

// Every function that Halide 21 declares for an assertion of a kernel (POLYHEAD_ASSERTIONS is a list that CMake reads in its header), by
// the symbol that kernels call. A missing one does not link.
#define DECLARED(name) decltype(::name) ours_##name __asm__("polyhead_" #name);
extern "C" {
POLYHEAD_ASSERTIONS(DECLARED)
}
#define ADDRESS(name) reinterpret_cast<const void *>(&ours_##name),
const void *const assertions[] = {POLYHEAD_ASSERTIONS(ADDRESS)};

// What a failing assertion returns and says.
struct Failed {
    int result;
    std::string text;
};
template <class Function, class... Arguments> Failed failed(Function *function, Arguments... arguments) {
    CallContext context(nullptr);
    const int result = function(&context, arguments...);
    return {result, context.text};
}

} // namespace

TEST_CASE("kernel interface: every assertion of a kernel has its function", "[runtime]") {
    CHECK(sizeof assertions / sizeof *assertions >= 25);
    for (const void *function : assertions) {
        CHECK(function);
    }
}

TEST_CASE("kernel interface: an assertion returns Halide's code and says tensor, found, expected", "[runtime]") {
    const auto check = [](const Failed &found, int code, const char *text) {
        CHECK(found.result == code);
        CHECK(found.text == text);
    };
    check(failed(ours_halide_error_bounds_inference_call_failed, "stage", -7), -7,
          "stage: found result -7 when it was asked which region it reads, expected 0");
    check(failed(ours_halide_error_extern_stage_failed, "stage", -7), -7, "stage: found result -7, expected 0");
    check(failed(ours_halide_error_explicit_bounds_too_small, "f", "x", 0, 3, -1, 4), halide_error_code_explicit_bounds_too_small,
          "f: x is within 0..3, expected -1..4 inside");
    check(failed(ours_halide_error_bad_type, "query", 0x12002u, 0x11002u), halide_error_code_bad_type,
          "query: found element type 0x12002, expected 0x11002");
    check(failed(ours_halide_error_bad_dimensions, "query", 3, 4), halide_error_code_bad_dimensions, "query: found rank 3, expected 4");
    check(failed(ours_halide_error_access_out_of_bounds, "key", 1, -1, 9, 0, 8), halide_error_code_access_out_of_bounds,
          "key: dimension 1 is read or written at -1..9, expected within 0..8");
    check(failed(ours_halide_error_buffer_allocation_too_large, "scores", uint64_t(1) << 40, uint64_t(1) << 31),
          halide_error_code_buffer_allocation_too_large, "scores: found 1099511627776 bytes, expected 2147483648 at most");
    check(failed(ours_halide_error_buffer_extents_negative, "key", 2, -1), halide_error_code_buffer_extents_negative,
          "key: dimension 2 has extent -1, expected at least 0");
    check(failed(ours_halide_error_buffer_extents_too_large, "key", int64_t(1) << 40, int64_t(1) << 31),
          halide_error_code_buffer_extents_too_large, "key: found 1099511627776 elements, expected 2147483648 at most");
    check(failed(ours_halide_error_constraints_make_required_region_smaller, "out", 1, 0, 4, 0, 8),
          halide_error_code_constraints_make_required_region_smaller,
          "out: dimension 1 has min 0 and extent 4, expected min 0 and extent 8");
    check(failed(ours_halide_error_constraint_violated, "key.stride.0", 2, "1", 1), halide_error_code_constraint_violated,
          "key.stride.0: found 2, expected 1, which is 1");
    check(failed(ours_halide_error_param_too_small_i64, "n", int64_t(-1), int64_t(0)), halide_error_code_param_too_small,
          "n: found -1, expected at least 0");
    check(failed(ours_halide_error_param_too_large_u64, "n", uint64_t(9), uint64_t(8)), halide_error_code_param_too_large,
          "n: found 9, expected 8 at most");
    check(failed(ours_halide_error_param_too_small_f64, "x", 0.5, 1.0), halide_error_code_param_too_small,
          "x: found a number below its smallest");
    check(failed(ours_halide_error_param_too_large_f64, "x", 2.0, 1.0), halide_error_code_param_too_large,
          "x: found a number above its largest");
    check(failed(ours_halide_error_out_of_memory), halide_error_code_out_of_memory, "memory between two stages could not be allocated");
    check(failed(ours_halide_error_buffer_argument_is_null, "key"), halide_error_code_buffer_argument_is_null,
          "key: found null, expected a buffer");
    check(failed(ours_halide_error_unaligned_host_ptr, "out", 64), halide_error_code_unaligned_host_ptr,
          "out: found an address that is no multiple of 64 bytes");
    check(failed(ours_halide_error_host_is_null, "out"), halide_error_code_host_is_null,
          "out: found null, expected an address of host memory");
    check(failed(ours_halide_error_bad_fold, "f", "x", "y"), halide_error_code_bad_fold, "f: x cannot be folded in the loop y");
    check(failed(ours_halide_error_bad_extern_fold, "f", 1, 2, 3, 4, 5), halide_error_code_bad_extern_fold,
          "f: dimension 1 is folded by 5 from 4 on, expected one fold around min 2 and extent 3");
    check(failed(ours_halide_error_fold_factor_too_small, "f", "x", 2, "y", 3), halide_error_code_fold_factor_too_small,
          "f: x is folded by 2 in the loop y, expected at least 3");
    check(failed(ours_halide_error_requirement_failed, "n > 0", "no rows"), halide_error_code_requirement_failed,
          "n > 0 does not hold: no rows");
    check(failed(ours_halide_error_specialize_fail, "rank"), halide_error_code_specialize_fail,
          "no case of the kernel serves the call: rank");
    check(failed(ours_halide_error_device_dirty_with_no_device_support, "key"), halide_error_code_device_dirty_with_no_device_support,
          "key: newer on a device, expected on the host");
    check(failed(ours_halide_error_storage_bound_too_small, "f", "x", 2, 3), halide_error_code_storage_bound_too_small,
          "f: x has room for 2, expected 3");
    check(failed(ours_halide_error_split_factor_not_positive, "f", "q", "qo", "qi", "tile", 0), halide_error_code_split_factor_not_positive,
          "f: the loop q is split by tile, found 0, expected at least 1");
    check(failed(ours_halide_error_vscale_invalid, "f", 1, 2), halide_error_code_vscale_invalid,
          "f: vectors of this machine have scale 1, expected 2");
}
