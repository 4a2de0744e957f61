// The table of builders.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "frame_builder.h"

namespace polyhead::gen {

// Each is defined in the file of its frame.
const FrameBuilder &head_lanes_builder();
const FrameBuilder &query_lanes_builder();
const FrameBuilder &split_rows_builder();
const FrameBuilder &split_tiles_builder();
const FrameBuilder &thread_rows_builder();
const FrameBuilder &warp_tiles_builder();
const FrameBuilder &group_tiles_builder();
const FrameBuilder &block_tiles_builder();
const FrameBuilder &plain_builder();

const FrameBuilder &builder_of(const Frame &frame) {
    static const FrameBuilder *const table[] = {&head_lanes_builder(),  &query_lanes_builder(), &split_rows_builder(),
                                                &split_tiles_builder(), &thread_rows_builder(), &block_tiles_builder(),
                                                &plain_builder(),       &warp_tiles_builder(),  &group_tiles_builder()};
    const auto *const found = std::find_if(std::begin(table), std::end(table),
                                           [&](const FrameBuilder *builder) { return std::strcmp(builder->name(), frame.name()) == 0; });
    _halide_internal_assert(found != std::end(table)) << "no builder of frame " << frame.name();
    return **found;
}

} // namespace polyhead::gen
