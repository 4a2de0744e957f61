// Children of a process whose threads exist, are busy, or cannot be made; devices of a parent.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "child_process.h"
#include "instruments/calls/not_run.h"
#include "runtime_fake_device.h"
#include "runtime_loops.h"
#include "support/catch.h"

using namespace polyhead;
using namespace polyhead::test;

namespace {

// 0 when calls in this process are right, with the present number of threads and with another; in a child that may make none, with one.
int calls_are_right() {
    LoopCall call(nested_loops);
    for (const int threads : children_may_make_threads ? std::vector<int>{0, 3, 1} : std::vector<int>{1}) {
        if (threads > 0) {
            set_num_threads(threads);
        }
        for (int i = 0; i < 10; ++i) {
            if (call.run().code != POLYHEAD_OK || !right(call)) {
                return 1;
            }
        }
    }
    polyhead_status status;
    char text[512];
    if (polyhead_scratch_bytes(&call.fake.table, &call.args, &status) < 0 || status.code != POLYHEAD_OK ||
        polyhead_explain(&call.fake.table, &call.args, text, sizeof text).code != POLYHEAD_OK) {
        return 2;
    }
    FakeKernel packer(linear(8, 8));
    const std::vector<float> weight(64, 1.0f);
    WeightTensors tensors{};
    tensors.out_proj = view(weight.data(), {8, 8});
    Weights packed;
    return packer.kernel().pack(tensors, &packed).ok() ? 0 : 3;
}

// Threads that call as fast as they can while this object exists.
class Busy {
public:
    explicit Busy(int callers) {
        for (int i = 0; i < callers; ++i) {
            threads_.emplace_back([this] {
                LoopCall call(nested_loops);
                while (!end_) {
                    wrong_ += call.run().code != POLYHEAD_OK || !right(call);
                    ++calls_;
                }
            });
        }
    }
    ~Busy() { finish(); }
    int finish() {
        end_ = true;
        for (std::thread &thread : threads_) {
            if (thread.joinable()) {
                thread.join();
            }
        }
        return wrong_;
    }
    int calls() const { return calls_; }

private:
    std::atomic<bool> end_{false};
    std::atomic<int> wrong_{0}, calls_{0};
    std::vector<std::thread> threads_;
};

} // namespace

TEST_CASE("fork: a child of a process with a pool", "[runtime]") {
    if (!parents_may_be_busy) {
        note_not_run("children of several threads", "the sanitizers do not follow a child of several threads");
        return;
    }
    for (const int threads : {1, 2, 4, 16}) {
        CAPTURE(threads);
        set_num_threads(threads);
        LoopCall call(nested_loops);
        REQUIRE(call.run().code == POLYHEAD_OK);
        CHECK(in_child(End::at_once, [] { return 0; }) == 0);
        CHECK(in_child(End::as_programs_do, [] { return 0; }) == 0);
        CHECK(in_child(End::as_programs_do, calls_are_right) == 0);
        CHECK(in_child(End::at_once, [] { // a child of a child
                  const int here = calls_are_right();
                  return here == 0 ? in_child(End::at_once, calls_are_right) : here;
              }) == 0);
        CHECK(call.run().code == POLYHEAD_OK);
        CHECK(right(call));
    }
    set_num_threads(0);
}

TEST_CASE("fork: a child of a process that is busy", "[runtime]") {
    if (!parents_may_be_busy) {
        note_not_run("children of several threads", "the sanitizers do not follow a child of several threads");
        return;
    }
    for (const int threads : {1, 2, 4, 16}) {
        CAPTURE(threads);
        set_num_threads(threads);
        Busy busy(3);
        while (busy.calls() == 0) {
            std::this_thread::yield();
        }
        for (int i = 0; i < 5; ++i) {
            CHECK(in_child(i % 2 ? End::at_once : End::as_programs_do, calls_are_right) == 0);
        }
        CHECK(busy.finish() == 0);
    }
    set_num_threads(0);
}

TEST_CASE("fork: a child of a thread that never called, while another one is changing the number", "[runtime]") {
    if (!parents_may_be_busy) {
        note_not_run("children of several threads", "the sanitizers do not follow a child of several threads");
        return;
    }
    std::atomic<bool> end{false};
    std::thread changes([&] {
        for (int i = 0; !end; ++i) {
            set_num_threads(1 + i % 4);
        }
    });
    Busy busy(1);
    for (int i = 0; i < 10; ++i) {
        CHECK(in_child(End::at_once, calls_are_right) == 0);
    }
    end = true;
    changes.join();
    CHECK(busy.finish() == 0);
    set_num_threads(0);
}

TEST_CASE("fork: a device of the parent is refused in a child", "[runtime]") {
    FakeDevice device;
    LoopCall call(nested_loops);
    call.fake.variant.api = device.api;
    call.args.device = &device;
    const auto refused = [](const polyhead_status &status) {
        return status.code == POLYHEAD_NO_DEVICE && std::string(status.message).find("before fork") != std::string::npos;
    };
    CHECK(in_child(End::at_once, [&] {
              char text[512];
              void *data = nullptr;
              polyhead_status status{};
              if (!refused(call.run()) || !refused(polyhead_explain(&call.fake.table, &call.args, text, sizeof text))) {
                  return 1;
              }
              polyhead_scratch_bytes(&call.fake.table, &call.args, &status);
              if (!refused(status) || !refused(polyhead_device_allocate(&device, 8, &data)) || !refused(polyhead_synchronize(&device))) {
                  return 2;
              }
              float number = 0;
              if (!refused(polyhead_copy_to_host(&device, &number, 0, 4, &number)) ||
                  !refused(polyhead_copy_to_device(&device, &number, 4, &number, 0))) {
                  return 3;
              }
              polyhead_device_free(&device, &number);
              polyhead_close_device(&device); // would delete what is on the stack
              return device.waits == 0 && call.fake.calls == 0 ? 0 : 4;
          }) == 0);
    CHECK(polyhead_synchronize(&device).code == POLYHEAD_OK);
}
