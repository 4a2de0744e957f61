// Calls of instructions of devices.
#include "device_calls.h"

#include "../machines/device_calls.h"

namespace polyhead::gen {

using Halide::Expr;

namespace {

Halide::Type type_of(Result result) {
    return result == Result::real ? Halide::Float(32) : result == Result::word ? Halide::UInt(32) : Halide::Int(32);
}

Expr call_of(const std::string &name, const std::string &expected, std::vector<Expr> arguments, Result result, const Expr &after) {
    if (arguments.size() + 1 == expected.size() && expected.back() == 'o') {
        arguments.push_back(after);
    }
    _halide_user_assert(arguments.size() == expected.size())
        << name << " has " << arguments.size() << " arguments, expected " << expected.size();
    return Halide::Internal::Call::make(type_of(result), device_call_prefix + name, arguments, Halide::Internal::Call::Extern);
}

// Of a call of which there is one for each type that is multiplied.
std::string of_type(const char *name, const Product &product) {
    return std::string(name) + (product.a == Number::tf32 ? "_f32" : product.a == Number::bf16 ? "_bf16" : "_f16");
}

} // namespace

Expr device_call(const std::string &name, std::vector<Expr> arguments, const Expr &after) {
    const DeviceCall *call = device_call_named(name);
    _halide_user_assert(call) << "there is no device call " << name;
    return call_of(name, call->arguments, std::move(arguments), call->result, after);
}

Expr warp_product(const Product &product, const Expr &sums, const Expr &a, const Expr &b, const Expr &from_zero, const Expr &after) {
    return call_of(product.function, product_arguments, {sums, a, b, Halide::cast<int32_t>(from_zero)}, Result::none, after);
}

Expr group_product(const Product &product, const Expr &sums, int columns, const GroupOperands &operands, const Expr &from_zero,
                   const Expr &after) {
    const std::string name = std::string(product.function) + (operands.a_in_memory ? of_memory : "");
    return call_of(name, operands.a_in_memory ? group_arguments_of_memory : group_arguments,
                   {sums, columns, operands.a, operands.b, operands.along_columns ? 1 : 0, Halide::cast<int32_t>(from_zero)}, Result::none,
                   after);
}

Expr descriptor(const Expr &address, int further_columns) {
    return ((address & descriptor_address_mask) / descriptor_unit) | (further_columns / descriptor_unit << descriptor_leading_shift);
}

Expr descriptor_step(const Expr &bytes) {
    return bytes / descriptor_unit;
}

Expr made_finite(const Product &product, const Expr &address, const Expr &whether, const Expr &after) {
    const Expr asked = Halide::cast<int32_t>(whether);
    return device_call(of_type("make_finite", product), {address, asked}, after);
}

Expr mended(const Product &product, const std::vector<Expr> &arguments) {
    return device_call(of_type("mend", product), arguments);
}

Expr negated(const Product &product, const Expr &address) {
    return product.parts() > 1 ? device_call(of_type("negate", product), {address}) : device_call("negate", {address});
}

Expr split(const Expr &stored, int words, int operands, const Expr &to, const Expr &loaded) {
    constexpr int parts = 2;
    Expr done = loaded;
    for (int i = 0; i < operands; i++) {
        done = device_call("split_" + std::to_string(words), {stored + i * words, to + i * words * parts}, done);
    }
    return done;
}

Expr packed(const Product &product, const Expr &low, const Expr &high) {
    return device_call(of_type("pack", product), {low, high});
}

} // namespace polyhead::gen
