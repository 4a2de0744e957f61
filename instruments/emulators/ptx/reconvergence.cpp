// Where the two sides of a divergent branch meet again: the immediate postdominator of its block.
#include "load.h"

#include <algorithm>
#include <set>

namespace polyhead::cuda_driver {

namespace {

struct Graph {
    std::vector<int32_t> first;         // per block: its first instruction; then the end of the code
    std::vector<std::vector<int>> next; // per block; the number of blocks is the virtual end
    std::vector<std::vector<int>> previous;
    int end() const { return static_cast<int>(first.size()) - 1; }
};

bool ends_block(const Instruction &instruction) {
    return instruction.flow == Flow::branch || instruction.flow == Flow::leave || instruction.flow == Flow::trap;
}

Graph build(const Kernel &kernel) {
    const int32_t size = static_cast<int32_t>(kernel.code.size());
    std::set<int32_t> leaders = {0, size};
    for (const Instruction &instruction : kernel.code) {
        if (ends_block(instruction)) {
            leaders.insert(instruction.index + 1);
        }
        if (instruction.flow == Flow::branch) {
            leaders.insert(instruction.target);
        }
    }
    Graph graph;
    graph.first.assign(leaders.begin(), leaders.end());
    const int end = graph.end();
    graph.next.resize(static_cast<size_t>(end) + 1);
    graph.previous.resize(static_cast<size_t>(end) + 1);
    const auto block_at = [&](int32_t index) {
        return static_cast<int>(std::lower_bound(graph.first.begin(), graph.first.end(), index) - graph.first.begin());
    };
    for (int block = 0; block < end; block++) {
        const Instruction &last = kernel.code[static_cast<size_t>(graph.first[static_cast<size_t>(block) + 1]) - 1];
        std::vector<int> &next = graph.next[static_cast<size_t>(block)];
        if (last.flow == Flow::branch) {
            next.push_back(block_at(last.target));
        } else if (ends_block(last)) {
            next.push_back(end);
        }
        if (!ends_block(last) || last.guard.width != 0) {
            next.push_back(block + 1); // the end of the code is the virtual end
        }
        for (int successor : next) {
            graph.previous[static_cast<size_t>(successor)].push_back(block);
        }
    }
    return graph;
}

// Blocks in postorder of the reversed graph, seen from the end.
std::vector<int> postorder(const Graph &graph) {
    std::vector<int> order;
    std::vector<size_t> progress(graph.next.size(), 0);
    std::vector<bool> seen(graph.next.size(), false);
    std::vector<int> stack = {graph.end()};
    seen[static_cast<size_t>(graph.end())] = true;
    while (!stack.empty()) {
        const size_t block = static_cast<size_t>(stack.back());
        if (progress[block] == graph.previous[block].size()) {
            order.push_back(stack.back());
            stack.pop_back();
            continue;
        }
        const int before = graph.previous[block][progress[block]++];
        if (!seen[static_cast<size_t>(before)]) {
            seen[static_cast<size_t>(before)] = true;
            stack.push_back(before);
        }
    }
    return order;
}

// Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm; on the reversed graph. -1: the end cannot be reached.
std::vector<int> postdominators(const Graph &graph) {
    const std::vector<int> order = postorder(graph);
    std::vector<int> number(graph.next.size(), -1), dominator(graph.next.size(), -1);
    for (size_t at = 0; at < order.size(); at++) {
        number[static_cast<size_t>(order[at])] = static_cast<int>(at);
    }
    const auto meet = [&](int a, int b) {
        while (a != b) {
            int &lower = number[static_cast<size_t>(a)] < number[static_cast<size_t>(b)] ? a : b;
            lower = dominator[static_cast<size_t>(lower)];
        }
        return a;
    };
    dominator[static_cast<size_t>(graph.end())] = graph.end();
    for (bool changed = true; changed;) {
        changed = false;
        for (auto block = order.rbegin(); block != order.rend(); ++block) {
            if (*block == graph.end()) {
                continue;
            }
            int found = -1;
            for (int next : graph.next[static_cast<size_t>(*block)]) {
                if (dominator[static_cast<size_t>(next)] >= 0) {
                    found = found < 0 ? next : meet(found, next);
                }
            }
            changed = changed || dominator[static_cast<size_t>(*block)] != found;
            dominator[static_cast<size_t>(*block)] = found;
        }
    }
    return dominator;
}

} // namespace

void find_reconvergence(Kernel &kernel) {
    const Graph graph = build(kernel);
    const std::vector<int> dominator = postdominators(graph);
    for (int block = 0; block < graph.end(); block++) {
        Instruction &last = kernel.code[static_cast<size_t>(graph.first[static_cast<size_t>(block) + 1]) - 1];
        const int meeting = dominator[static_cast<size_t>(block)];
        last.reconverge = meeting < 0 || meeting == graph.end() ? -1 : graph.first[static_cast<size_t>(meeting)];
    }
}

} // namespace polyhead::cuda_driver
