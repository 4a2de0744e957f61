// The kernel by hand: its sources, and an entry that does what Halide's generated code does with Halide's runtime.
#include "runtime_sum.h"

#include <cstring>
#include <string>

#include "../runtime/devices/halide_devices.h"
#include "../runtime/status.h"
#include "support/catch.h"

namespace polyhead::test {
namespace {

// The last argument is shared memory, which Halide's runtime passes to every kernel.
const char opencl_source[] = R"(
__kernel void sum(__global const float *q, __global const float *k, __global const float *v, __global float *out, int d, int h, int last,
                  int q1, int q2, int q3, int k2, int k3, int v1, int v2, int v3, int o1, int o2, int o3, __local char *shared) {
    int x = get_global_id(0), y = get_global_id(1), hh = get_global_id(2) % h, b = get_global_id(2) / h;
    if (x < d) {
        out[x + y * o1 + hh * o2 + b * o3] = q[x + y * q1 + hh * q2 + b * q3] + 10.0f * k[x + hh * k2 + b * k3]
                                             + 100.0f * v[x + last * v1 + hh * v2 + b * v3];
    }
})";

const char cuda_source[] = R"(
.version 7.1
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 a0, .param .u64 a1, .param .u64 a2, .param .u64 a3, .param .u32 a4, .param .u32 a5, .param .u32 a6,
    .param .u32 a7, .param .u32 a8, .param .u32 a9, .param .u32 a10, .param .u32 a11, .param .u32 a12, .param .u32 a13, .param .u32 a14,
    .param .u32 a15, .param .u32 a16, .param .u32 a17)
{
    .reg .pred %p<2>;
    .reg .f32 %f<6>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<17>;
    ld.param.u64 %rd1, [a0];
    ld.param.u64 %rd2, [a1];
    ld.param.u64 %rd3, [a2];
    ld.param.u64 %rd4, [a3];
    ld.param.u32 %r15, [a4];
    ld.param.u32 %r2, [a5];
    ld.param.u32 %r3, [a6];
    ld.param.u32 %r4, [a7];
    ld.param.u32 %r5, [a8];
    ld.param.u32 %r6, [a9];
    ld.param.u32 %r7, [a10];
    ld.param.u32 %r8, [a11];
    ld.param.u32 %r9, [a12];
    ld.param.u32 %r10, [a13];
    ld.param.u32 %r11, [a14];
    ld.param.u32 %r12, [a15];
    ld.param.u32 %r13, [a16];
    ld.param.u32 %r14, [a17];
    mov.u32 %r16, %ctaid.x;
    mov.u32 %r17, %ntid.x;
    mov.u32 %r18, %tid.x;
    mad.lo.s32 %r1, %r16, %r17, %r18;
    setp.ge.s32 %p1, %r1, %r15;
    @%p1 bra DONE;
    mov.u32 %r19, %ctaid.y;
    mov.u32 %r20, %ctaid.z;
    div.s32 %r21, %r20, %r2;
    mul.lo.s32 %r22, %r21, %r2;
    sub.s32 %r23, %r20, %r22;
    mad.lo.s32 %r24, %r19, %r4, %r1;
    mad.lo.s32 %r25, %r23, %r5, %r24;
    mad.lo.s32 %r26, %r21, %r6, %r25;
    mul.wide.s32 %rd6, %r26, 4;
    add.s64 %rd7, %rd1, %rd6;
    mad.lo.s32 %r27, %r23, %r7, %r1;
    mad.lo.s32 %r28, %r21, %r8, %r27;
    mul.wide.s32 %rd9, %r28, 4;
    add.s64 %rd10, %rd2, %rd9;
    ld.global.f32 %f1, [%rd10];
    ld.global.f32 %f2, [%rd7];
    fma.rn.f32 %f3, %f1, 0f41200000, %f2;
    mad.lo.s32 %r29, %r9, %r3, %r1;
    mad.lo.s32 %r30, %r23, %r10, %r29;
    mad.lo.s32 %r31, %r21, %r11, %r30;
    mul.wide.s32 %rd12, %r31, 4;
    add.s64 %rd13, %rd3, %rd12;
    ld.global.f32 %f4, [%rd13];
    fma.rn.f32 %f5, %f4, 0f42C80000, %f3;
    mad.lo.s32 %r32, %r19, %r12, %r1;
    mad.lo.s32 %r33, %r23, %r13, %r32;
    mad.lo.s32 %r34, %r21, %r14, %r33;
    mul.wide.s32 %rd15, %r34, 4;
    add.s64 %rd16, %rd4, %rd15;
    st.global.f32 [%rd16], %f5;
DONE:
    ret;
}
)";

using Initialize = int (*)(void *, void **, const char *, int);
using Run = int (*)(void *, void *, const char *, int, int, int, int, int, int, int, size_t[], void *[], int8_t[]);

struct Api {
    const halide_device_interface_t *(*interface)();
    Initialize initialize;
    Run run;
    const char *source;
    int source_bytes;
    void *state; // of the loaded code: Halide keeps it in a static variable, too
};

Api opencl{
    halide_opencl_device_interface, halide_opencl_initialize_kernels, halide_opencl_run, opencl_source, sizeof opencl_source, nullptr};
Api cuda{halide_cuda_device_interface, halide_cuda_initialize_kernels, halide_cuda_run, cuda_source, sizeof cuda_source, nullptr};

int launch(void *user_context, Api &api, halide_buffer_t *query, halide_buffer_t *key, halide_buffer_t *value, halide_buffer_t *out,
           int last) {
    void *buffers[] = {query, key, value, out};
    const halide_dimension_t *q = query->dim, *k = key->dim, *v = value->dim, *o = out->dim;
    int numbers[] = {q[0].extent, q[2].extent, last,        q[1].stride, q[2].stride, q[3].stride, k[2].stride,
                     k[3].stride, v[1].stride, v[2].stride, v[3].stride, o[1].stride, o[2].stride, o[3].stride};
    constexpr size_t num_buffers = 4, num_numbers = 14;
    void *arguments[num_buffers + num_numbers];
    size_t bytes[num_buffers + num_numbers + 1] = {};
    int8_t is_buffer[num_buffers + num_numbers + 1] = {};
    for (size_t i = 0; i < num_buffers + num_numbers; ++i) {
        is_buffer[i] = i < num_buffers;
        arguments[i] = is_buffer[i] ? buffers[i] : &numbers[i - num_buffers];
        bytes[i] = is_buffer[i] ? sizeof(uint64_t) : sizeof(int);
    }
    const int result = api.run(user_context, api.state, "sum", 1, q[1].extent, q[2].extent * q[3].extent, 16, 1, 1, shared_bytes_of_sum,
                               bytes, arguments, is_buffer);
    out->set_device_dirty(result == 0);
    return result;
}

int run_sum(Api &api, void **argv, bool with_lengths) {
    void *user_context = *static_cast<void **>(argv[0]);
    halide_buffer_t *buffers[5];
    const int inputs = with_lengths ? 4 : 3;
    for (int i = 0; i < inputs; ++i) {
        buffers[i] = static_cast<halide_buffer_t *>(argv[1 + i]);
        if (const int result = halide_copy_to_device(user_context, buffers[i], api.interface())) {
            return result;
        }
    }
    auto *out = static_cast<halide_buffer_t *>(argv[2 + inputs]); // softmax_scale lies between
    if (const int result = halide_device_malloc(user_context, out, api.interface())) {
        return result;
    }
    if (const int result = api.initialize(user_context, &api.state, api.source, api.source_bytes)) {
        return result;
    }
    int last = buffers[1]->dim[1].extent - 1;
    if (with_lengths) { // a generated kernel reads it on the device
        int32_t length = 0;
        halide_dimension_t one{0, 1, 1, 0};
        halide_buffer_t copy = *buffers[3];
        copy.dimensions = 1;
        copy.dim = &one;
        copy.host = reinterpret_cast<uint8_t *>(&length);
        copy.set_host_dirty(false);
        copy.set_device_dirty(true);
        if (const int result = halide_copy_to_host(user_context, &copy)) {
            return result;
        }
        halide_device_sync_global(user_context, api.interface());
        last = length - 1;
    }
    return launch(user_context, api, buffers[0], buffers[1], buffers[2], out, last);
}

float at(const halide_buffer_t *b, int x, int y, int h, int row) {
    return reinterpret_cast<const float *>(b->host)[x + y * b->dim[1].stride + h * b->dim[2].stride + row * b->dim[3].stride];
}

int sum_on_cpu(void **argv) {
    const auto *q = static_cast<halide_buffer_t *>(argv[1]), *k = static_cast<halide_buffer_t *>(argv[2]),
               *v = static_cast<halide_buffer_t *>(argv[3]), *out = static_cast<halide_buffer_t *>(argv[5]);
    for (int b = 0; b < q->dim[3].extent; ++b) {
        for (int h = 0; h < q->dim[2].extent; ++h) {
            for (int y = 0; y < q->dim[1].extent; ++y) {
                for (int x = 0; x < q->dim[0].extent; ++x) {
                    const float sum = at(q, x, y, h, b) + 10 * at(k, x, 0, h, b) + 100 * at(v, x, v->dim[1].extent - 1, h, b);
                    reinterpret_cast<float *>(out->host)[x + y * out->dim[1].stride + h * out->dim[2].stride + b * out->dim[3].stride] =
                        sum;
                }
            }
        }
    }
    return 0;
}

polyhead_variant variant_of(const char *name, int32_t api, int32_t capability, int (*entry)(void **)) {
    polyhead_variant v{};
    v.name = name;
    v.target = "by hand";
    v.tiling = "";
    v.entry = entry;
    v.api = api;
    v.capability = capability;
    v.abi = POLYHEAD_ABI_VERSION;
    return v;
}

Problem sum_problem(bool with_lengths) {
    Problem p = polyhead_problem_of(POLYHEAD_SDPA);
    p.num_heads = p.num_kv_heads = SumCall::heads;
    p.head_dim = p.head_dim_v = SumCall::dim;
    p.kv_lengths = with_lengths;
    return p;
}

} // namespace

int shared_bytes_of_sum = 0;

const Kernel &sum_kernel() {
    static const polyhead_variant variants[] = {
        variant_of("sum_opencl", POLYHEAD_OPENCL, 0, [](void **argv) { return run_sum(opencl, argv, false); }),
        variant_of("sum_cuda", POLYHEAD_CUDA, 80, [](void **argv) { return run_sum(cuda, argv, false); }),
        variant_of("sum_cpu", POLYHEAD_CPU, 0, sum_on_cpu)};
    static const Kernel kernel(polyhead_kernel{POLYHEAD_SIZES, sum_problem(false), "sum", variants, nullptr, 3, 0, 0, 0});
    return kernel;
}

const Kernel &sum_kernel_with_lengths() {
    static const polyhead_variant variants[] = {
        variant_of("sum_lengths_opencl", POLYHEAD_OPENCL, 0, [](void **argv) { return run_sum(opencl, argv, true); }),
        variant_of("sum_lengths_cuda", POLYHEAD_CUDA, 80, [](void **argv) { return run_sum(cuda, argv, true); })};
    static const Kernel kernel(polyhead_kernel{POLYHEAD_SIZES, sum_problem(true), "sum_lengths", variants, nullptr, 2, 0, 0, 0});
    return kernel;
}

SumCall::SumCall(float seed) {
    const auto fill = [&](std::vector<float> *values, int64_t length) {
        for (int64_t i = 0; i < batch * heads * length * dim; ++i) {
            values->push_back(seed++);
        }
    };
    fill(&query, seq_len_q);
    fill(&key, seq_len_kv);
    fill(&value, seq_len_kv);
    out.assign(query.size(), -1.0f);
    args.query = view(query.data(), {batch, heads, seq_len_q, dim});
    args.key = view(key.data(), {batch, heads, seq_len_kv, dim});
    args.value = view(value.data(), {batch, heads, seq_len_kv, dim});
    args.out = view(out.data(), {batch, heads, seq_len_q, dim});
}

std::vector<float> SumCall::expected(int64_t last) const {
    std::vector<float> result;
    for (int64_t row = 0; row < batch * heads; ++row) {
        for (int64_t y = 0; y < seq_len_q; ++y) {
            for (int64_t x = 0; x < dim; ++x) {
                result.push_back(query[static_cast<size_t>((row * seq_len_q + y) * dim + x)] +
                                 10 * key[static_cast<size_t>(row * seq_len_kv * dim + x)] +
                                 100 * value[static_cast<size_t>((row * seq_len_kv + last) * dim + x)]);
            }
        }
    }
    return result;
}

Held::Held(const Device &device, TensorView *tensor, int64_t offset, int64_t beyond) : device_(device) {
    int64_t elements = 1;
    for (int i = 0; i < tensor->rank; ++i) {
        elements *= tensor->shape[i];
    }
    element_bytes_ = static_cast<size_t>(contract::dtype_bytes(tensor->dtype));
    elements_ = static_cast<size_t>(elements);
    offset_ = static_cast<size_t>(offset);
    const Status allocated = device.allocate(static_cast<size_t>(elements + offset + beyond) * element_bytes_, &data_);
    INFO(allocated.message());
    REQUIRE(allocated.ok());
    REQUIRE(device.copy_to_device(tensor->data, elements_ * element_bytes_, data_, offset_ * element_bytes_).ok());
    tensor->data = data_;
    tensor->offset = offset;
    tensor->device = device.raw();
}

std::vector<float> Held::read() const {
    std::vector<float> values(elements_);
    const Status status = device_.copy_to_host(data_, offset_ * element_bytes_, elements_ * element_bytes_, values.data());
    INFO(status.message());
    REQUIRE(status.ok());
    return values;
}

} // namespace polyhead::test
