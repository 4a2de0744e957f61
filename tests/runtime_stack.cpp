// How much stack the runtime takes: half of what the headers promise for a call, so that kernels have the other half.
#include <string>
#include <vector>

#include <polyhead/cache.h>

#include "runtime_calls.h"
#include "runtime_fake_device.h"
#include "small_stack.h"
#include "support/environment.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// The status of a call on a small stack.
template <typename Call> std::string on_small_stack(const Call &call) {
    polyhead_status status{};
    if (sanitized()) {
        status = call();
    } else {
        run_on_stack(promised_stack_bytes / 2, [&] { status = call(); });
    }
    return status.message;
}

} // namespace

TEST_CASE("stack: calls with everything that takes room", "[runtime]") {
    set_num_threads(2);
    SECTION("attention, explained and run") {
        SdpaCall call;
        std::vector<char> text(1 << 12);
        CHECK(on_small_stack([&] { return call.fake.run(call.args); }).empty());
        CHECK(on_small_stack([&] { return polyhead_explain(&call.fake.table, &call.args, text.data(), text.size()); }).empty());
        call.args.alignment = 77;
        CHECK(!on_small_stack([&] { return call.fake.run(call.args); }).empty());
    }
    SECTION("packed tokens, whose parts run on threads") {
        ThreeTokens call;
        CHECK(on_small_stack([&] { return call.fake.run(call.args); }).empty());
        CHECK(call.fake.calls > 0);
    }
    SECTION("a layer on a device, with tensors to pack") {
        MhaCall call(MhaCall::cross());
        FakeDevice device;
        call.args.device = &device;
        call.fake.variant.api = device.api;
        std::vector<float> wide(B * T_q * 16);
        call.args.query = view(wide.data(), {B, T_q, 8}, {T_q * 16, 16, 1});
        CHECK(on_small_stack([&] { return call.fake.run(call.args); }).empty());
        CHECK(call.fake.calls == 1);
    }
    SECTION("rows of the largest heads") {
        std::vector<int8_t> cache(4 * 576);
        std::vector<float> rows(2 * 576, 0.5f), scales(4), table(4 * 288);
        std::vector<int32_t> lengths = {1};
        polyhead_cache to = polyhead_cache_of(view(cache.data(), {1, 1, 4, 576}), {}, {});
        to.key_scales = view(scales.data(), {1, 1, 4, 1});
        polyhead_new_keys keys = polyhead_new_keys_of();
        keys.key = view(rows.data(), {1, 1, 2, 576});
        keys.lengths = view(lengths.data(), {1});
        keys.rotation = {POLYHEAD_ROPE_HALF_SPLIT, view(table.data(), {4, 288}), view(table.data(), {4, 288}), {}};
        CHECK(on_small_stack([&] { return polyhead_append(&to, &keys); }).empty());
        const polyhead_tensor input = keys.key;
        CHECK(on_small_stack([&] { return polyhead_rotate(&input, &keys.rotation, &input); }).empty());
        polyhead_head_norm norm = polyhead_head_norm_of(POLYHEAD_RMS_NORM, 1e-6f);
        CHECK(on_small_stack([&] { return polyhead_normalize(&input, &norm, &input); }).empty());
        std::vector<float> sums(2);
        const polyhead_state part = {input, view(sums.data(), {1, 1, 2})};
        CHECK(on_small_stack([&] { return polyhead_merge_states(&part, 1, nullptr, &part.out, &part.lse); }).empty());
    }
    set_num_threads(0);
}
