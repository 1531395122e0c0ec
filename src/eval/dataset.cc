#include "eval/dataset.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/hash.h"
#include "base/rng.h"
#include "base/text.h"
#include "eval/dataset_item.h"

namespace cento {
namespace {

constexpr size_t kBufferBytes = size_t{256} << 10;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

std::string file_stem(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
  const size_t dot = name.find_last_of('.');
  return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

}  // namespace

const char* eval_kind_name(EvalKind kind) {
  switch (kind) {
    case EvalKind::kQa:
      return "qa";
    case EvalKind::kSumm:
      return "summ";
    case EvalKind::kDocqa:
      return "docqa";
    case EvalKind::kPrompt:
      return "prompt";
  }
  return "?";
}

std::string chunk_text(const EvalChunk& chunk) {
  return chunk.title.empty() ? chunk.text : chunk.title + "\n" + chunk.text;
}

std::string summary_instruction(const std::string& query) {
  const std::string_view wish = trim(query);
  if (wish.empty()) return "Summarize the text.";
  const std::string lower = to_lower_ascii(wish);
  for (const char* stem : {"summari", "summary"}) {
    if (lower.find(stem) != std::string::npos) return std::string(wish);
  }
  return "Summarize what the text says about: " + std::string(wish);
}

std::vector<size_t> shuffled_order(const EvalItem& item, size_t n_chunks, uint64_t seed) {
  const Hash hash = Hasher("eval chunk order").add_u64(seed).add_text(item.id).finish();
  uint64_t own_seed = 0;
  for (size_t i = 0; i < 8; ++i) own_seed |= uint64_t{hash.bytes[i]} << 8 * i;
  Rng rng(own_seed);
  std::vector<size_t> order(n_chunks);
  std::iota(order.begin(), order.end(), size_t{0});
  shuffle(order, rng);
  return order;
}

void shuffle_chunks(EvalItem& item, uint64_t seed) {
  std::vector<EvalChunk> chunks;
  for (const size_t i : shuffled_order(item, item.chunks.size(), seed)) chunks.push_back(std::move(item.chunks[i]));
  item.chunks = std::move(chunks);
}

DatasetReader::DatasetReader(const std::string& path)
    : DatasetReader(FileSystem::real().open_read(path).or_throw(), path) {}

DatasetReader::DatasetReader(std::unique_ptr<File> file, const std::string& path)
    : file_(std::move(file)), path_(path), set_(to_valid_utf8(file_stem(path))), one_prompt_(path.ends_with(".json")) {
  size_ = file_->size().or_throw();
}

// Fills the empty buffer; leaves it empty at the end of the file. A file that shrinks meanwhile is an error.
Status DatasetReader::refill() {
  used_ = 0;
  buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kBufferBytes, size_ - offset_)));
  if (buffer_.empty()) return Status::done();
  auto status = file_->read_at(offset_, std::as_writable_bytes(std::span(buffer_)));
  offset_ += buffer_.size();
  if (!status) {
    buffer_.clear();
    offset_ = size_;
  }
  return status;
}

// Puts the next line into text_, which may end in CR: white space to JSON. Of a line that is too long nothing is kept.
Result<DatasetReader::Line> DatasetReader::next_line() {
  text_.clear();
  bool too_long = false, any = false;
  for (;;) {
    if (used_ == buffer_.size()) {
      if (auto status = refill(); !status) return status.error();
      if (buffer_.empty()) break;
    }
    any = true;
    const size_t found = one_prompt_ ? std::string::npos : buffer_.find('\n', used_);
    const size_t end = found == std::string::npos ? buffer_.size() : found;
    if (!too_long && end - used_ <= kLineBytesMax - text_.size()) {
      text_.append(buffer_, used_, end - used_);
    } else {
      too_long = true;
      std::string().swap(text_);
    }
    used_ = found == std::string::npos ? end : end + 1;
    if (found != std::string::npos) break;
  }
  if (!any) return Line::kNone;
  ++line_;
  if (line_ == 1 && text_.starts_with(kByteOrderMark)) text_.erase(0, kByteOrderMark.size());
  return too_long ? Line::kTooLong : Line::kWhole;
}

Result<EvalItem> DatasetReader::parse(std::string_view line) {
  const std::string where = path_ + (one_prompt_ ? "" : ":" + std::to_string(line_));
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    return Error{one_prompt_ ? Code::kUsage : Code::kInput, what, where, hint};
  };
  Result<EvalItem> item = parse_eval_item(line, one_prompt_);
  if (!item) return refuse(item.error().message(), item.error().hint());
  if (item->id.empty()) item->id = one_prompt_ ? set_ : set_ + ":" + std::to_string(line_);
  item->set = set_;
  if (!ids_.insert(item->id).second) return refuse("the id \"" + printable(item->id) + "\" is in the file twice", "");
  return item;
}

Result<std::optional<EvalItem>> DatasetReader::next() {
  for (;;) {
    const Result<Line> line = next_line();
    if (!line) return line.error();
    if (*line == Line::kNone) {
      if (one_prompt_ && line_ == 0) {
        ++line_;
        return Error{Code::kUsage, "the prompt file is empty", path_, prompt_file_hint()};
      }
      return std::optional<EvalItem>();
    }
    if (*line == Line::kTooLong) {
      return Error{
          one_prompt_ ? Code::kUsage : Code::kInput,
          (one_prompt_ ? "the prompt file is larger than " : "the line is longer than ") + size_text(kLineBytesMax),
          path_ + (one_prompt_ ? "" : ":" + std::to_string(line_)), "write one item a line"};
    }
    if (!one_prompt_ && trim(text_).empty()) continue;
    auto item = parse(text_);
    if (!item) return item.error();
    return std::optional<EvalItem>(std::move(item).value());
  }
}

}  // namespace cento
