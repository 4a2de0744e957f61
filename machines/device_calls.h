// Instructions of devices that Halide 21 does not write: one row each. A kernel calls an extern function; a pass over the code of the
// device (compile/device_calls.cpp) writes the instruction in its place. The products of a warp are such calls, too (products.h).
//
// Fragments of matrices and sums are registers that the pass declares. A call names them by numbers, so LLVM never sees their values.
#ifndef POLYHEAD_MACHINES_DEVICE_CALLS_H
#define POLYHEAD_MACHINES_DEVICE_CALLS_H

#include <cstdint>
#include <string_view>

#include "products.h"

namespace polyhead::gen {

// The names of the functions begin with it, so that no other call is taken for one.
constexpr const char *device_call_prefix = "polyhead_device_";
// The shared memory of a block that uses these calls: declared by the pass, as large as `shared_memory` says.
constexpr const char *device_shared_memory = "polyhead_shared_memory";
constexpr int device_shared_alignment = 1024; // of the pattern in which matrices lie there
constexpr int memory_barrier_bytes = 8;       // of a barrier there

enum class Result : uint8_t { none, integer, word, real }; // none: 0, which only says what comes first

struct DeviceCall {
    const char *name;
    // A letter for each argument. Numbers that must stand there: f, a register of a float; w, of two elements of 16 bits; n, any number; c,
    // columns of a product of four warps. v: a value. e: an element of a tensor, of which the instruction takes the address. o: what must
    // have happened before; it is not read.
    const char *arguments;
    Result result;
    // PTX. $2 is argument 2, $2+1 the register behind it, $2:4 a list of 4 registers from that on, $2+4:4 of the next ones, $* of the sums
    // of all columns, $= the result, $# a number of this call alone. `each` stands between `text` and `after` once for each 4 registers
    // from argument 0 on, of which argument 1 is the number, and calls them $[0] to $[3]; $+ are the bytes of those before as elements of
    // 16 bits, $> of 32.
    const char *text, *each = "", *after = "";
};

// An element is not finite where all bits of its exponent are 1: adding a 1 to the lowest of them carries into the place of the sign.
#define POLYHEAD_FIND_IN_WORD(word, exponents, lowest)                                                                                     \
    "and.b32 %t" word ", %x" word ", " exponents ";\nadd.s32 %t" word ", %t" word ", " lowest ";\nand.b32 %t" word ", %t" word             \
    ", 0x80008000;\nor.b32 %all, %all, %t" word ";\nshr.u32 %t" word ", %t" word ", 15;\nmul.lo.s32 %t" word ", %t" word                   \
    ", 65535;\nnot.b32 %t" word ", %t" word ";\nand.b32 %x" word ", %x" word ", %t" word ";\n"
#define POLYHEAD_MAKE_FINITE(exponents, lowest)                                                                                            \
    "{\n.reg .pred %whether, %bad;\n.reg .b32 %x<4>, %t<4>, %all;\nsetp.ne.b32 %whether, $1, 0;\nmov.b32 %all, 0;\nmov.b32 %x0, 0;\n"      \
    "mov.b32 %x1, 0;\nmov.b32 %x2, 0;\nmov.b32 %x3, 0;\n@%whether ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [$0];\n" POLYHEAD_FIND_IN_WORD(   \
        "0", exponents, lowest) POLYHEAD_FIND_IN_WORD("1", exponents, lowest) POLYHEAD_FIND_IN_WORD("2", exponents, lowest)                \
        POLYHEAD_FIND_IN_WORD(                                                                                                             \
            "3", exponents, lowest) "setp.ne.b32 %bad, %all, 0;\n@%bad st.shared.v4.b32 [$0], {%x0, %x1, %x2, %x3};\nmov.b32 $=, %all;\n}"

// What moves the reference of a row up, and makes the factor that this means for its sums: the new reference is an integer
// (Softmax::reference, Softmax::rescaling), or in natural units any number.
#define POLYHEAD_POWER_OF_INTEGER(factor)                                                                                                  \
    "max.f32 %d, %d, 0fC2FE0000;\ncvt.rzi.s32.f32 %i, %d;\nshl.b32 %i, %i, 23;\nadd.s32 " factor ", %i, 0x3F800000;\n"
#define POLYHEAD_POWER_OF_NUMBER(factor)                                                                                                   \
    "setp.eq.f32 %q, %d, 0f00000000;\nmul.f32 %d, %d, 0f3FB8AA3B;\nex2.approx.ftz.f32 %d, %d;\nselp.f32 " factor ", 0f3F800000, %d, %q;\n"
#define POLYHEAD_RAISE_ROW(reference, largest, factor, round_up, power)                                                                    \
    "shfl.sync.bfly.b32 %o, " largest ", 1, 31, -1;\nmax.ftz.f32 %m, " largest ", %o;\nshfl.sync.bfly.b32 %o, %m, 2, 31, -1;\n"            \
    "max.ftz.f32 %m, %m, %o;\n" round_up "max.ftz.f32 %m, %m, " reference ";\nsub.f32 %d, " reference                                      \
    ", %m;\n" power(factor) "mov.b32 " reference ", %m;\n"
#define POLYHEAD_RAISE(round_up, power)                                                                                                    \
    "{\n.reg .pred %q, %any;\n.reg .b32 %o, %m, %d, %i, %s0, %s1;\nsetp.gt.f32 %q, $4, $2;\nsetp.gt.or.f32 %q, $5, $3, %q;\n"              \
    "vote.sync.any.pred %any, %q, -1;\n@!%any bra.uni $polyhead_skip$#;\n" POLYHEAD_RAISE_ROW("$2", "$4", "%s0", round_up, power)          \
        POLYHEAD_RAISE_ROW("$3", "$5", "%s1", round_up, power)
#define POLYHEAD_SCALE_FOUR "mul.f32 $[0], $[0], %s0;\nmul.f32 $[1], $[1], %s0;\nmul.f32 $[2], $[2], %s1;\nmul.f32 $[3], $[3], %s1;"
#define POLYHEAD_RAISED "$polyhead_skip$#:\n}"
#define POLYHEAD_RAISE_REFERENCES(round_up, power)                                                                                         \
    "{\n.reg .pred %q, %any;\n.reg .b32 %o, %m, %d, %i, %s0, %s1;\nmov.b32 $2, 0f3F800000;\nmov.b32 $3, 0f3F800000;\n"                     \
    "setp.gt.f32 %q, $4, $0;\nsetp.gt.or.f32 %q, $5, $1, %q;\nvote.sync.any.pred %any, %q, -1;\n@!%any bra.uni "                           \
    "$polyhead_skip$#;\n" POLYHEAD_RAISE_ROW("$0", "$4", "%s0", round_up, power)                                                           \
        POLYHEAD_RAISE_ROW("$1", "$5", "%s1", round_up, power) "mov.b32 $2, %s0;\nmov.b32 $3, %s1;\n$polyhead_skip$#:\n}"

// Of two elements %e that lie side by side: floats, %x and %y. Those that are finite become 0; the others are added to the sums of the rows
// that see the key, of which %m0 and %m1 have all bits.
#define POLYHEAD_MEND_ELEMENT(element, first, second)                                                                                      \
    "and.b32 %b, " element ", 0x7f800000;\nsetp.eq.b32 %q, %b, 0x7f800000;\nselp.b32 " element ", " element ", 0, %q;\n"                   \
    "and.b32 %b, " element ", %m0;\nadd.f32 " first ", " first ", %b;\nand.b32 %b, " element ", %m1;\nadd.f32 " second ", " second         \
    ", %b;\n"
#define POLYHEAD_MEND_FOUR(to_floats)                                                                                                      \
    "ld.global.b32 %e, [%a+$+];\n" to_floats POLYHEAD_MEND_ELEMENT("%x", "$[0]", "$[2]") POLYHEAD_MEND_ELEMENT("%y", "$[1]", "$[3]")
#define POLYHEAD_MEND                                                                                                                      \
    "{\n.reg .pred %q;\n.reg .b16 %h<2>;\n.reg .b32 %i, %e, %x, %y, %b, %m0, %m1;\n.reg .b64 %a, %s;\nsetp.le.s32 %q, $4, 0;\n"            \
    "@%q bra.uni $polyhead_skip$#;\nmov.b32 %i, 0;\nmov.b64 %a, $2;\nsub.s64 %s, $3, %a;\n$polyhead_key$#:\nshr.u32 %m0, $5, %i;\n"        \
    "and.b32 %m0, %m0, 1;\nneg.s32 %m0, %m0;\nshr.u32 %m1, $6, %i;\nand.b32 %m1, %m1, 1;\nneg.s32 %m1, %m1;"
#define POLYHEAD_MEND_FLOATS                                                                                                               \
    "ld.global.v2.b32 {%x, %y}, [%a+$>];\n" POLYHEAD_MEND_ELEMENT("%x", "$[0]", "$[2]") POLYHEAD_MEND_ELEMENT("%y", "$[1]", "$[3]")
#define POLYHEAD_MENDED                                                                                                                    \
    "add.s64 %a, %a, %s;\nadd.s32 %i, %i, 1;\nsetp.lt.s32 %q, %i, $4;\n@%q bra.uni $polyhead_key$#;\n$polyhead_skip$#:\n}"

// The same for elements of 32 bits.
#define POLYHEAD_FIND_FLOAT(word)                                                                                                          \
    "and.b32 %t, %x" word ", 0x7f800000;\nsetp.eq.b32 %q, %t, 0x7f800000;\nselp.b32 %x" word ", 0, %x" word                                \
    ", %q;\nselp.b32 %t, 1, 0, %q;\nor.b32 %all, %all, %t;\n"
// A float x as two numbers of 11 bits: the upper is cut off, so that it stays finite; the lower is what is left, rounded. Of what is not
// finite nothing is left: inf - inf is no number. It is the lower part, and 0 the upper: as an upper part an infinity would meet the lower
// part of a number that has none, and inf * 0 is no number either.
#define POLYHEAD_SPLIT_FLOAT(x, upper, lower)                                                                                              \
    "and.b32 %u, " x ", 0xffffe000;\nsub.f32 %l, " x ", %u;\nsetp.num.f32 %q, %l, %l;\nselp.b32 %l, %l, %u, %q;\n"                         \
    "selp.b32 " upper ", %u, 0, %q;\nadd.s32 %l, %l, 4096;\nand.b32 " lower ", %l, 0xffffe000;\n"
#define POLYHEAD_SPLIT(text) "{\n.reg .pred %q;\n.reg .b32 %u, %l, %x;\n" text "}"

inline constexpr DeviceCall device_calls[] = {
    // (bytes): where the shared memory of the block begins
    {"shared_memory", "no", Result::integer, "mov.u32 $=, polyhead_shared_memory;"},
    // (to, the first of 8 elements, bytes of them that are read, 0 or 16; the others are 0)
    {"copy", "vevo", Result::none, "cp.async.cg.shared.global [$0], [$1], 16, $2;"},
    {"commit", "o", Result::none, "cp.async.commit_group;"},
    // (x): x, of which Halide knows no bounds
    {"unbounded", "vo", Result::integer, "mov.b32 $=, $0;"},
    // (groups of copies that may be under way)
    {"wait", "no", Result::none, "cp.async.wait_group $0;"},
    {"barrier", "o", Result::none, "bar.sync 0;"},
    // What this thread has written to shared memory is there for products of four warps.
    {"fence_products", "o", Result::none, "fence.proxy.async.shared::cta;"},
    // Barriers in shared memory. (address, threads that arrive, number of this thread): thread 0 makes it; a barrier of the block follows
    {"make_barrier", "vnvo", Result::none, "{\n.reg .pred %q;\nsetp.eq.s32 %q, $2, 0;\n@%q mbarrier.init.shared::cta.b64 [$0], $1;\n}"},
    {"arrive", "vo", Result::none, "mbarrier.arrive.shared::cta.b64 _, [$0];"},
    // (address, parity of the phase that must have ended): the branch says that it is uniform, or products of four warps would be
    // serialised
    {"wait_for_phase", "vvo", Result::none,
     "{\n.reg .pred %q;\n$polyhead_again$#:\nmbarrier.try_wait.parity.shared::cta.b64 %q, [$0], $1;\nvote.sync.all.pred %q, %q, "
     "-1;\n@!%q bra.uni $polyhead_again$#;\n}"},
    // (x): does any thread of the block have another x than 0? All threads meet.
    {"any_of_block", "vo", Result::integer,
     "{\n.reg .pred %q, %any;\nsetp.ne.b32 %q, $0, 0;\nbar.red.or.pred %any, 0, %q;\nselp.b32 $=, 1, 0, %any;\n}"},
    // (first, count)
    {"zero", "fno", Result::none, "",
     "mov.b32 $[0], 0f00000000;\nmov.b32 $[1], 0f00000000;\nmov.b32 $[2], 0f00000000;\nmov.b32 $[3], 0f00000000;"},
    // Products of four warps: before the first one, and after other instructions have named their registers
    {"group_fence", "o", Result::none, "wgmma.fence.sync.aligned;"},
    {"group_commit", "o", Result::none, "wgmma.commit_group.sync.aligned;"},
    // (groups of products that may be under way)
    {"group_wait", "no", Result::none, "wgmma.wait_group.sync.aligned $0;"},
    // (the same, bits of a float that is less than 1e38, in which all of what stands before the wait takes part): ptxas moves a wait up,
    // over what should overlap the products, but not over a branch that it cannot decide
    {"group_wait_behind", "nvo", Result::none,
     "{\n.reg .pred %q;\nsetp.gt.s32 %q, $1, 2130706432;\nvote.sync.any.pred %q, %q, -1;\n@!%q bra.uni $polyhead_there$#;\nnanosleep.u32 "
     "0;\n$polyhead_there$#:\nwgmma.wait_group.sync.aligned $0;\n}"},
    // (first of 4, first of what is added to them)
    {"add", "ffo", Result::none,
     "add.f32 $0+0, $0+0, $1+0;\nadd.f32 $0+1, $0+1, $1+1;\nadd.f32 $0+2, $0+2, $1+2;\nadd.f32 $0+3, $0+3, $1+3;"},
    {"get", "fo", Result::real, "mov.b32 $=, $0;"},
    {"set", "fvo", Result::none, "mov.b32 $0, $1;"},
    {"set_word", "wvo", Result::none, "mov.b32 $0, $1;"},
    // (first, count, references of two rows, the largest logits that the lane has of them): where one in the warp is above its reference,
    // references become those of the largest of four neighbouring lanes, and the sums come into their unit, the first two of 4 into that of
    // the first row. Otherwise all of it is skipped.
    {"raise", "fnffvvo", Result::none, POLYHEAD_RAISE("cvt.rpi.ftz.f32.f32 %m, %m;\n", POLYHEAD_POWER_OF_INTEGER), POLYHEAD_SCALE_FOUR,
     POLYHEAD_RAISED},
    {"raise_natural", "fnffvvo", Result::none, POLYHEAD_RAISE("", POLYHEAD_POWER_OF_NUMBER), POLYHEAD_SCALE_FOUR, POLYHEAD_RAISED},
    // The same in two calls, where acc is not there yet: (references of two rows, factors of their sums, the largest logits that the lane
    // has of them), and (first, count, factors), which is skipped where all of the warp are 1.
    {"raise_references", "ffffvvo", Result::none, POLYHEAD_RAISE_REFERENCES("cvt.rpi.ftz.f32.f32 %m, %m;\n", POLYHEAD_POWER_OF_INTEGER)},
    {"raise_natural_references", "ffffvvo", Result::none, POLYHEAD_RAISE_REFERENCES("", POLYHEAD_POWER_OF_NUMBER)},
    {"scale", "fnffo", Result::none,
     "{\n.reg .pred %q, %any;\nsetp.neu.f32 %q, $2, 0f3F800000;\nsetp.neu.or.f32 %q, $3, 0f3F800000, %q;\n"
     "vote.sync.any.pred %any, %q, -1;\n@!%any bra.uni $polyhead_skip$#;",
     "mul.f32 $[0], $[0], $2;\nmul.f32 $[1], $[1], $2;\nmul.f32 $[2], $[2], $3;\nmul.f32 $[3], $[3], $3;", POLYHEAD_RAISED},
    // (address of 8 elements): their signs change
    {"negate", "vo", Result::none,
     "{\n.reg .b32 %x<4>;\nld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [$0];\nxor.b32 %x0, %x0, 0x80008000;\nxor.b32 %x1, %x1, 0x80008000;\n"
     "xor.b32 %x2, %x2, 0x80008000;\nxor.b32 %x3, %x3, 0x80008000;\nst.shared.v4.b32 [$0], {%x0, %x1, %x2, %x3};\n}"},
    {"negate_f32", "vo", Result::none,
     "{\n.reg .b32 %x<4>;\nld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [$0];\nxor.b32 %x0, %x0, 0x80000000;\nxor.b32 %x1, %x1, 0x80000000;\n"
     "xor.b32 %x2, %x2, 0x80000000;\nxor.b32 %x3, %x3, 0x80000000;\nst.shared.v4.b32 [$0], {%x0, %x1, %x2, %x3};\n}"},
    // (first of 2 or 4 words, the words of their parts): the upper ones, then the lower ones
    {"split_2", "wwo", Result::none,
     POLYHEAD_SPLIT(POLYHEAD_SPLIT_FLOAT("$0+0", "$1+0", "$1+2") POLYHEAD_SPLIT_FLOAT("$0+1", "$1+1", "$1+3"))},
    {"split_4", "wwo", Result::none,
     POLYHEAD_SPLIT(POLYHEAD_SPLIT_FLOAT("$0+0", "$1+0", "$1+4") POLYHEAD_SPLIT_FLOAT("$0+1", "$1+1", "$1+5")
                        POLYHEAD_SPLIT_FLOAT("$0+2", "$1+2", "$1+6") POLYHEAD_SPLIT_FLOAT("$0+3", "$1+3", "$1+7"))},
    // (upper word, lower word, a float)
    {"split", "wwvo", Result::none, POLYHEAD_SPLIT("mov.b32 %x, $2;\n" POLYHEAD_SPLIT_FLOAT("%x", "$0", "$1"))},
    // (first of 4 words, address, bytes behind it): elements of 32 bits of two neighbouring rows, the first of which is even, and of the
    // columns 0 and 8
    {"load_columns", "wvno", Result::none,
     "{\n.reg .b32 %a<3>;\nxor.b32 %a0, $1, 144;\nxor.b32 %a1, $1, 32;\nxor.b32 %a2, $1, 176;\nld.shared.b32 $0+0, [$1+$2];\n"
     "ld.shared.b32 $0+1, [%a0+$2];\nld.shared.b32 $0+2, [%a1+$2];\nld.shared.b32 $0+3, [%a2+$2];\n}"},
    // (first of 4 words, address of the row of this lane, bytes behind it): 4 matrices of 8 x 8 elements
    {"load_matrices", "wvno", Result::none, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 $0:4, [$1+$2];"},
    {"load_transposed", "wvno", Result::none, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 $0:4, [$1+$2];"},
    // (word, address, bytes behind it)
    {"load_word", "wvno", Result::none, "ld.shared.b32 $0, [$1+$2];"},
    // (address of 8 elements, whether): each that is not finite becomes 0; not 0 where there is one
    {"make_finite_f16", "vvo", Result::integer, POLYHEAD_MAKE_FINITE("0x7c007c00", "0x04000400")},
    {"make_finite_bf16", "vvo", Result::integer, POLYHEAD_MAKE_FINITE("0x7f807f80", "0x00800080")},
    {"make_finite_f32", "vvo", Result::integer,
     "{\n.reg .pred %whether, %q, %bad;\n.reg .b32 %x<4>, %t, %all;\nsetp.ne.b32 %whether, $1, 0;\nmov.b32 %all, 0;\nmov.b32 %x0, 0;\n"
     "mov.b32 %x1, 0;\nmov.b32 %x2, 0;\nmov.b32 %x3, 0;\n@%whether ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [$0];\n" POLYHEAD_FIND_FLOAT("0")
         POLYHEAD_FIND_FLOAT("1") POLYHEAD_FIND_FLOAT("2") POLYHEAD_FIND_FLOAT(
             "3") "setp.ne.b32 %bad, %all, 0;\n@%bad st.shared.v4.b32 [$0], {%x0, %x1, %x2, %x3};\nmov.b32 $=, %all;\n}"},
    // (first, count, the lane's first element of the value of a key, that of the next key, keys, at most 32, a bit for each that its first
    // row sees, and its second): adds the elements that are not finite
    {"mend_f16", "fneevvvo", Result::none, POLYHEAD_MEND,
     POLYHEAD_MEND_FOUR("mov.b32 {%h0, %h1}, %e;\ncvt.f32.f16 %x, %h0;\ncvt.f32.f16 %y, %h1;\n"), POLYHEAD_MENDED},
    {"mend_bf16", "fneevvvo", Result::none, POLYHEAD_MEND, POLYHEAD_MEND_FOUR("shl.b32 %x, %e, 16;\nand.b32 %y, %e, 0xffff0000;\n"),
     POLYHEAD_MENDED},
    {"mend_f32", "fneevvvo", Result::none, POLYHEAD_MEND, POLYHEAD_MEND_FLOATS, POLYHEAD_MENDED},
    // (low, high): rounded to nearest
    {"pack_f16", "vv", Result::word, "cvt.rn.f16x2.f32 $=, $1, $0;"},
    {"pack_bf16", "vv", Result::word, "cvt.rn.bf16x2.f32 $=, $1, $0;"},
};

// (sums, a, b, from zero): the instruction of a product adds to the sums, or begins with 0
constexpr const char *product_arguments = "fwwno";
// (sums, columns, a, b, whether rows of b in memory are along its columns, from zero): of four warps. a is registers, or with the second
// name a matrix in memory whose rows are along k; b is one in memory. What names a matrix there is the low word of its descriptor.
constexpr const char *group_arguments = "fcwvnno", *group_arguments_of_memory = "fcvvnno", *of_memory = "_of_memory";
constexpr int widest_group_product = 256;

// PTX ISA, "Matrix Descriptor Format": the address and, from bit 16 on, how far the next 64 columns are, both in 16 bytes; in the high word
// the distance of 8 rows of 128 bytes and the swizzle of 128 bytes.
constexpr int descriptor_unit = 16, descriptor_address_mask = 0x3ffff, descriptor_leading_shift = 16;
constexpr const char *group_product_text = "{\n.reg .pred %plus;\n.reg .b32 %not;\n.reg .b64 %matrix_a, %matrix_b;\nmov.b32 %not, $5;\n"
                                           "setp.eq.b32 %plus, %not, 0;\nmov.b64 %matrix_b, {$3, 1073741888};\n",
                     *matrix_a_text = "mov.b64 %matrix_a, {$2, 1073741888};\n";

constexpr const DeviceCall *device_call_named(std::string_view name) {
    for (const DeviceCall &call : device_calls) {
        if (name == call.name) {
            return &call;
        }
    }
    return nullptr;
}

// The product that is asked for by a call of this name, and whether both operands are in memory.
struct CalledProduct {
    const Product *product;
    bool of_memory;
};
constexpr CalledProduct product_called(std::string_view name) {
    for (const Product &product : products) {
        const std::string_view function = product.form == Form::written ? product.function : "";
        if (!function.empty() && name.substr(0, function.size()) == function) {
            const std::string_view rest = name.substr(function.size());
            if (rest.empty() || (product.held_by == Holder::group && rest == of_memory)) {
                return {&product, !rest.empty()};
            }
        }
    }
    return {nullptr, false};
}

} // namespace polyhead::gen
#endif
