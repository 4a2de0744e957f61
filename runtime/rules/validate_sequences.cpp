// Checks calls with packed tokens: where their sequences begin, and whether the kernel can compute them one by one.
#include "../call/call_tensors.h"
#include "../call/part_of_call.h"
#include "../status.h"
#include "tensor_rules.h"
#include "validate_parts.h"

namespace polyhead::runtime {

bool check_begins(const char *name, const polyhead_tensor &tensor, const char *packed, int64_t total, polyhead_status *status) noexcept {
    const int64_t last = tensor.shape[0] - 1;
    int32_t before = 0;
    for (int64_t i = 0; i <= last; ++i) {
        const int32_t value = integer_at(tensor, i);
        if (i == 0 && value != 0) {
            return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index 0, expected 0", name, value);
        }
        if (value < before) {
            return refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index %lld, expected at least %d, the value before it", name, value,
                          static_cast<long long>(i), before);
        }
        before = value;
    }
    return before == total ||
           refuse(status, POLYHEAD_BAD_VALUE, "%s: value %d at index %lld, the last, expected %lld, the extent of dimension 2 of %s", name,
                  before, static_cast<long long>(last), static_cast<long long>(total), packed);
}

// On the host also for calls on a device: the sequences are found before anything runs.
bool check_sequences(const polyhead_args &args, int64_t *sequences, polyhead_status *status) noexcept {
    const polyhead_tensor &q = args.cu_seqlens_q, &kv = args.cu_seqlens_kv;
    if (!absent(q)) {
        if (!check_host_tensor({"cu_seqlens_q", &q, POLYHEAD_I32, Role::lengths, 1, {}}, status)) {
            return false;
        }
        if (q.shape[0] < 1) {
            return refuse(status, POLYHEAD_WRONG_SHAPE, "cu_seqlens_q: extent 0 of dimension 0, expected at least 1");
        }
        *sequences = q.shape[0] - 1;
    }
    const Extent begins{*sequences + 1, absent(q) ? nullptr : "cu_seqlens_q"};
    return absent(kv) || check_host_tensor({"cu_seqlens_kv", &kv, POLYHEAD_I32, Role::lengths, 1, {begins}}, status);
}

bool check_ragged(const KernelTable &kernel, const polyhead_args &args, const CallShape &shape, polyhead_status *status) noexcept {
    const polyhead_problem &p = kernel.problem;
    const char *given = shape.packed_q ? "cu_seqlens_q" : "cu_seqlens_kv";
    if (p.scores != POLYHEAD_NO_SCORES || p.weights_mean) {
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: given, expected none, because the kernel has an output over pairs (%s)", given,
                      p.weights_mean ? "weights_mean" : "scores");
    }
    if (kernel.reads_batch_row()) {
        return refuse(status, POLYHEAD_UNSUPPORTED,
                      "%s: given, expected none, because the kernel's expression uses b otherwise than as the index of a dimension b",
                      given);
    }
    if (const char *const sum = summed_result(kernel, args, shape)) { // every sequence would begin it anew
        return refuse(status, POLYHEAD_UNSUPPORTED, "%s: given, expected none, because %s is a sum over all sequences", given, sum);
    }
    if (shape.reads_nothing()) {
        return true;
    }
    return (!shape.packed_q || check_begins("cu_seqlens_q", args.cu_seqlens_q, "query", shape.seq_len_q, status)) &&
           (!shape.packed_kv || check_begins("cu_seqlens_kv", args.cu_seqlens_kv, "key", shape.seq_len_kv, status));
}

} // namespace polyhead::runtime
