// The kernel of gradients beside a forward kernel: what it takes of its request.
#include "../contract/operations.h"
#include "../contract/problem_fields.h"
#include "../plan/problem.h"
#include "request.h"
#include "reserved_names.h"

namespace polyhead::tools {
namespace {

// "sdpa, mha or linear"
std::string with_gradients() {
    std::string text, last;
    for (const contract::Operation &row : contract::operations) {
        if (contract::backward_of(row.id) >= 0) {
            text += last.empty() ? "" : (text.empty() ? "" : ", ") + last;
            last = row.name;
        }
    }
    return text + " or " + last;
}

// Both have the fields that both operations know; those of gradients go to the one, lse to the other, which writes it for the first.
std::string add_backward(std::vector<Request> *kernels) {
    Request &forward = kernels->front();
    const int32_t op = contract::backward_of(forward.problem.op);
    if (op < 0) {
        return std::string("backward: found op ") + contract::op_name(forward.problem.op) + ", expected " + with_gradients();
    }
    Request backward = forward;
    backward.name += "_backward";
    backward.problem.op = op;
    backward.problem.lse = backward.problem.keep_heads = 0;
    backward.tiling.clear();
    forward.problem.lse = contract::by_heads(forward.problem) ? 1 : forward.problem.lse;
    forward.problem.keep_heads = contract::is_attention_layer(forward.problem) ? 1 : 0;
    for (const contract::ProblemField &field : contract::problem_fields) {
        if (field.belongs_to(op) && !field.belongs_to(forward.problem.op)) {
            forward.problem.*field.value = 0;
        }
    }
    kernels->push_back(backward);
    return refuse_name(backward.name);
}

} // namespace

std::string complete_requests(const Request &given, std::vector<Request> *kernels) {
    *kernels = {given};
    std::string error = given.backward ? add_backward(kernels) : "";
    for (Request &kernel : *kernels) {
        const std::string found = error.empty() ? gen::complete(&kernel.problem) : "";
        error = found.empty() ? error : &kernel == &kernels->front() ? found : "backward: " + found;
    }
    return error;
}

} // namespace polyhead::tools
