// Calls with tensors on a device.
#include "device_call.h"

#include "call_tensors.h"

namespace polyhead::test {

namespace {

// Whether a tensor of this name is on the device when only some are: key, value and the tensors over keys.
bool goes_with_keys(const std::string &name) {
    return name == "key" || name == "value" || name == "key_scales" || name == "value_scales" || name == "kv_lengths" ||
           name == "page_table" || name == "mask" || name == "positions_kv" || name == "rope_cos" || name == "rope_sin";
}

} // namespace

DeviceCall::DeviceCall(polyhead_device *device, Home home, const polyhead_args &args)
    : device_(device), home_(home), args_(args),
      expression_tensors_(args.expression_tensors, args.expression_tensors + args.num_expression_tensors) {
    for (const CallTensor &input : inputs_of(args.op)) {
        copy(input.name, args_.*input.tensor, false);
    }
    for (polyhead_tensor &tensor : expression_tensors_) {
        copy("tensor of the expression", tensor, false);
    }
    for (const CallTensor &output : outputs_of(args.op)) {
        copy(output.name, args_.*output.tensor, true);
    }
    for (const CallTensor &cache : cache_tensors) {
        copy(cache.name, args_.*cache.tensor, true);
    }
    args_.expression_tensors = expression_tensors_.data();
}

void DeviceCall::copy(const char *name, polyhead_tensor &tensor, bool output) {
    if (status_.code == POLYHEAD_OK && (home_ == Home::device || (home_ == Home::mixed && !output && goes_with_keys(name)))) {
        copies_.push_back({name, std::make_unique<Mirror>(device_, tensor), output});
        status_ = copies_.back().mirror->status();
        tensor = copies_.back().mirror->view();
    }
}

std::string DeviceCall::read_back() {
    std::string failures;
    for (const Copy &one : copies_) {
        const std::string failure = one.output ? one.mirror->read_back() : one.mirror->find_change();
        failures += failure.empty() ? "" : (failures.empty() ? "" : "; ") + std::string(one.name) + ": " + failure;
    }
    return failures;
}

} // namespace polyhead::test
