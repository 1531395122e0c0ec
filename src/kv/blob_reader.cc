#include "kv/blob_reader.h"

#include "base/check.h"
#include "base/clock.h"

namespace cento {

Status BlobReader::read_layer(uint32_t layer, std::span<std::byte> k, std::span<std::byte> v) {
  CHECK(layer < header_.shape.n_layers);
  if (auto s = read_frame(layer, "K", header_.frames[2 * size_t{layer}], k); !s) return s;
  return read_frame(layer, "V", header_.frames[2 * size_t{layer} + 1], v);
}

Status BlobReader::read_frame(uint32_t layer, const char* side, const BlobFrame& frame, std::span<std::byte> out) {
  CHECK(out.size() == frame.raw_bytes);
  const auto error = [&](Code code, const std::string& what) {
    return Error{code, what + " in " + side + " of layer " + std::to_string(layer),
                 path_ + ", byte " + std::to_string(frame.offset)};
  };
  const KvCodec codec = header_.codecs[layer];
  // A raw frame is read to where it is wanted; the others are no longer than the file, which holds them.
  const bool direct = codec == KvCodec::kRaw;
  if (direct && frame.stored_bytes != frame.raw_bytes) return error(Code::kInput, "frame has the wrong length");
  if (!direct) stored_.resize(frame.stored_bytes);
  const std::span<std::byte> stored = direct ? out : std::span(stored_);
  const Stopwatch watch;
  if (auto s = file_->read_at(frame.offset, stored); !s) return s;
  cost_.read_ms += watch.ms();
  bytes_read_ += stored.size();
  const double from = thread_cpu_ms();
  const bool intact = crc32c(stored) == frame.crc;
  const Status unpacked =
      intact && !direct
          ? codec_.decode(codec, frame_shape(header_.shape, header_.ids.size(), layer, *side == 'K'), stored, out)
          : Status::done();
  cost_.unpack_ms += thread_cpu_ms() - from;
  if (!intact) return error(Code::kInput, "checksum mismatch");
  if (!unpacked.ok()) return error(unpacked.error().code(), unpacked.error().message());
  return Status::done();
}

}  // namespace cento
