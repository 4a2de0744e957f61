// What a check runs: a kernel, one of its variants, or a stand-in, as one function over polyhead_args.
#ifndef POLYHEAD_INSTRUMENTS_SUBJECT_H
#define POLYHEAD_INSTRUMENTS_SUBJECT_H

#include <functional>
#include <string>
#include <vector>

#include <polyhead/polyhead.h>

#include "device_call.h"
#include "guard.h"
#include "inputs.h"
#include "weights.h"

namespace polyhead::test {

struct Subject {
    std::string name;
    Problem problem{};
    polyhead_weight_tensors weights = polyhead_weight_tensors_of(); // unpacked, in f32, for the reference; zeroed for sdpa
    std::function<polyhead_status(const polyhead_args &)> run;
    std::function<void(int)> set_threads = polyhead_set_num_threads;
};

// A kernel with weights of its own, packed into guarded memory that ends at an unmapped page. With a device it runs there.
class KernelSubject {
public:
    KernelSubject(const polyhead_kernel &kernel, uint64_t seed, bool separate_weights = false, polyhead_device *device = nullptr,
                  Home home = Home::host);
    ~KernelSubject();
    const Subject &subject() const { return subject_; }
    Subject &subject() { return subject_; }
    const polyhead_status &pack_status() const { return pack_status_; }
    const polyhead_weights &packed() const { return packed_; }
    // Unpacked, in the storage type of the problem.
    const polyhead_weight_tensors &weights() const { return weights_.tensors(); }
    // The arguments with these weights, wherever they are, and the device.
    polyhead_args prepared(polyhead_args args) const;

private:
    polyhead_status run_on_device(const polyhead_args &args) const;

    polyhead_kernel kernel_;
    LayerWeights weights_;
    GuardedBuffer memory_;
    polyhead_weights packed_{}, on_device_{};
    polyhead_status pack_status_{};
    polyhead_device *device_;
    Home home_;
    Subject subject_;

public:
    KernelSubject(const KernelSubject &) = delete; // subject_ refers to members
    KernelSubject &operator=(const KernelSubject &) = delete;
};

// One-variant copies of the kernel, for its variants of one api that this machine, and the device if one is given, can run: each forces
// its variant. The copies point into the kernel's table.
std::vector<polyhead_kernel> forced_variants(const polyhead_kernel &kernel, Api api = Api::cpu, const Device *device = nullptr);
// The shape for a variant that reads whole vectors of query, key and value, and of a layer writes pairs: no gaps of odd size between rows.
Shape fitting(Shape shape, const polyhead_kernel &forced);
// Whether the first variant of the kernel serves this query length.
bool serves(const polyhead_kernel &kernel, int64_t seq_len_q);

} // namespace polyhead::test
#endif
