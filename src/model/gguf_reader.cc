#include "model/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/size_math.h"
#include "base/text.h"

namespace cento {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

using Type = GgufValue::Type;

// Far above any real file (about 60 keys, 20 tensors a layer), low enough that a table of that size fits anywhere.
constexpr uint64_t kKeysMax = 1 << 16;
constexpr uint64_t kTensorsMax = 1 << 17;
constexpr uint64_t kDefaultAlignment = 32;  // GGUF specification, general.alignment
constexpr const char* kFetchAgain = "the file is damaged or cut short; fetch it again";

// Bytes of a scalar; 0 for strings and arrays, whose size is in the file; nullopt for a number that is no type.
std::optional<uint64_t> scalar_bytes(uint32_t type) {
  switch (static_cast<Type>(type)) {
    case Type::kU8:
    case Type::kI8:
    case Type::kBool:
      return 1;
    case Type::kU16:
    case Type::kI16:
      return 2;
    case Type::kU32:
    case Type::kI32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kI64:
    case Type::kF64:
      return 8;
    case Type::kString:
    case Type::kArray:
      return 0;
  }
  return std::nullopt;
}

const char* type_name(Type type) {
  static constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                           "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown type";
}

template <class T>
T load(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A name out of the file, safe and short enough for a message.
std::string quoted(std::string_view name) {
  constexpr size_t kShown = 64;
  return "'" + printable(name.substr(0, kShown)) + (name.size() > kShown ? "...'" : "'");
}

std::string at_byte(const MappedFile& file, uint64_t offset) {
  return file.path() + ", byte " + std::to_string(offset);
}

// A place in the file that only moves forward, over bytes that are there.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return file_.bytes().size() - at_; }
  uint64_t offset_of(std::span<const std::byte> bytes) const {
    return static_cast<uint64_t>(bytes.data() - file_.bytes().data());
  }

  [[noreturn]] void fail(uint64_t offset, const std::string& message, const std::string& hint = kFetchAgain) const {
    throw Error{Code::kInput, message, at_byte(file_, offset), hint};
  }
  std::span<const std::byte> take(uint64_t n_bytes, const std::string& what) {
    const auto bytes = file_.slice(at_, n_bytes);
    if (!bytes) {
      fail(at_, what + " needs " + std::to_string(n_bytes) + " bytes, but " + std::to_string(left()) + " are left");
    }
    at_ += n_bytes;
    return *bytes;
  }
  uint32_t u32(const std::string& what) { return load<uint32_t>(take(4, what).data()); }
  uint64_t u64(const std::string& what) { return load<uint64_t>(take(8, what).data()); }
  std::span<const std::byte> text(const std::string& what) { return take(u64("the length of " + what), what); }
  std::string name(const std::string& what) {
    const auto bytes = text(what);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A count of things of at least `each` bytes. Nothing is allocated before this has passed.
  uint64_t count(const std::string& what, uint64_t each, uint64_t most) {
    const uint64_t start = at_;
    const uint64_t n = u64("the number of " + what);
    if (n > left() / each || n > most) {
      fail(start, "the file says it has " + std::to_string(n) + " " + what + ", more than " +
                      std::to_string(std::min(left() / each, most)) + ", the most that can be");
    }
    return n;
  }

 private:
  const MappedFile& file_;
  uint64_t at_ = 0;
};

uint32_t read_version(Cursor& in) {
  const auto magic = in.take(4, "the magic");
  const std::string_view found(reinterpret_cast<const char*>(magic.data()), 4);
  if (found == "FUGG") in.fail(0, "big-endian GGUF is not supported", "convert the model for a little-endian machine");
  if (found == "lmgg" || found == "fmgg" || found == "tjgg" || found == "algg") {
    in.fail(0, "this is a GGML file of the kind before GGUF: magic " + quoted(found), "fetch the model as GGUF");
  }
  if (found != "GGUF") in.fail(0, "not a GGUF file: magic is " + quoted(found), "name a model in GGUF format");
  const uint32_t version = in.u32("the version");
  if (version == 1) in.fail(4, "GGUF version 1 is not supported", "fetch the model as GGUF version 2 or 3");
  if (version != 0 && (version & 0xffffu) == 0) {
    in.fail(4, "big-endian GGUF is not supported: version reads as " + std::to_string(version),
            "convert the model for a little-endian machine");
  }
  if (version != 2 && version != 3) {
    in.fail(4, "GGUF version " + std::to_string(version) + " is not supported, only 2 and 3");
  }
  return version;
}

void check_bools(Cursor& in, uint64_t start, std::span<const std::byte> bytes, const std::string& what) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto b = std::to_integer<unsigned>(bytes[i]);
    if (b > 1) in.fail(start + i, what + " is a bool that is neither 0 nor 1 but " + std::to_string(b));
  }
}

GgufValue read_array(Cursor& in, const std::string& what) {
  GgufValue value{Type::kArray, Type::kU8, 0, {}};
  const uint64_t type_at = in.at();
  const uint32_t element = in.u32("the element type of " + what);
  const auto each = scalar_bytes(element);
  if (!each) in.fail(type_at, what + " has elements of the unknown type " + std::to_string(element));
  if (static_cast<Type>(element) == Type::kArray) {
    in.fail(type_at, what + " is an array of arrays, which is not supported", "no known model has one; fetch it again");
  }
  value.element = static_cast<Type>(element);
  const uint64_t smallest = *each == 0 ? 8 : *each;  // of a string: its length
  value.count = in.count("elements in " + what, smallest, std::numeric_limits<uint64_t>::max());
  const uint64_t start = in.at();
  if (*each != 0) {
    value.bytes = in.take(value.count * *each, what);  // cannot overflow: count is bytes left / each at most
    if (value.element == Type::kBool) check_bools(in, start, value.bytes, what);
    return value;
  }
  const std::byte* const first = in.take(0, what).data();
  for (uint64_t i = 0; i < value.count; ++i) (void)in.text("an element of " + what);
  value.bytes = {first, in.at() - start};
  return value;
}

GgufValue read_value(Cursor& in, const std::string& what) {
  const uint64_t type_at = in.at();
  const uint32_t raw = in.u32("the type of " + what);
  const auto n_bytes = scalar_bytes(raw);
  if (!n_bytes) in.fail(type_at, what + " has the unknown type " + std::to_string(raw));
  const auto type = static_cast<Type>(raw);
  if (type == Type::kArray) return read_array(in, what);
  const uint64_t start = in.at();
  GgufValue value{type, Type::kU8, 0, type == Type::kString ? in.text(what) : in.take(*n_bytes, what)};
  if (type == Type::kBool) check_bools(in, start, value.bytes, what);
  return value;
}

// What the table says of a tensor. The data is found later, when the end of the table is known.
struct Entry {
  GgufTensor tensor;
  uint64_t offset;     // from the start of the tensor data
  uint64_t offset_at;  // of that number in the file
};

Entry read_entry(Cursor& in) {
  const uint64_t start = in.at();
  Entry e{{in.name("a tensor name"), {}, 0, false}, 0, 0};
  const std::string what = "tensor " + quoted(e.tensor.name);
  if (e.tensor.name.empty()) in.fail(start, "a tensor has no name");
  TensorView& view = e.tensor.view;
  const uint64_t dims_at = in.at();
  view.n_dims = in.u32("the dimensions of " + what);
  if (view.n_dims < 1 || view.n_dims > 4) {
    in.fail(dims_at, what + " has " + std::to_string(view.n_dims) + " dimensions; 1 to 4 are possible");
  }
  uint64_t n_elements = 1;
  for (uint32_t i = 0; i < view.n_dims; ++i) {  // the file has the fastest axis first
    const uint64_t dim_at = in.at();
    const uint64_t dim = in.u64("the shape of " + what);
    const auto product = checked_mul(n_elements, dim);
    // 2^60 elements of 4 bytes are the most that a 64-bit size could tell.
    if (dim == 0 || !product || *product > (uint64_t{1} << 60)) {
      in.fail(dim_at, what + " has the impossible dimension " + std::to_string(dim));
    }
    n_elements = *product;
    view.shape[view.n_dims - 1 - i] = dim;
  }
  e.tensor.raw_type = in.u32("the type of " + what);
  e.offset_at = in.at();
  e.offset = in.u64("the offset of " + what);
  const auto info = dtype_info(e.tensor.raw_type);
  if (!info) return e;
  e.tensor.readable = true;
  view.dtype = static_cast<DType>(e.tensor.raw_type);
  if (view.cols() % info->elements != 0) {
    in.fail(dims_at, what + " has rows of " + std::to_string(view.cols()) + " values, no multiple of the " +
                         std::to_string(info->elements) + " of a " + info->name + " block");
  }
  view.n_bytes = n_elements / info->elements * info->bytes;
  return e;
}

uint64_t read_alignment(const Cursor& in, const GgufFile& file) {
  static constexpr std::string_view kKey = "general.alignment";
  const auto alignment = file.integer(kKey).value_or(kDefaultAlignment);
  // 8: what the specification asks for; every tensor type can then be read where it lies.
  if (alignment < 8 || !std::has_single_bit(alignment)) {
    in.fail(in.offset_of(file.values().find(kKey)->second.bytes),
            "general.alignment is " + std::to_string(alignment) + ", no power of two from 8 up");
  }
  return alignment;
}

void refuse_overlap(const Cursor& in, std::vector<const Entry*> entries) {
  std::sort(entries.begin(), entries.end(), [](const Entry* a, const Entry* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < entries.size(); ++i) {
    const Entry &before = *entries[i - 1], &e = *entries[i];
    if (before.offset + before.tensor.view.n_bytes > e.offset) {
      in.fail(e.offset_at, "tensors " + quoted(before.tensor.name) + " and " + quoted(e.tensor.name) + " overlap");
    }
  }
}

[[noreturn]] void wrong_type(const GgufFile& file, std::string_view key, const GgufValue& value, const char* wanted) {
  const auto offset = static_cast<uint64_t>(value.bytes.data() - file.file().bytes().data());
  std::string found = type_name(value.type);
  if (value.type == Type::kArray) found += std::string(" of ") + type_name(value.element);
  throw Error{Code::kInput, std::string(key) + " should be " + wanted + ", but is " + found,
              at_byte(file.file(), offset), kFetchAgain};
}

// An integer or bool of any width; nullopt for other types. U64 values above the int64 range are told by `too_large`.
std::optional<int64_t> integer_at(Type type, const std::byte* p, bool& too_large) {
  switch (type) {
    case Type::kU8:
    case Type::kBool:
      return load<uint8_t>(p);
    case Type::kI8:
      return load<int8_t>(p);
    case Type::kU16:
      return load<uint16_t>(p);
    case Type::kI16:
      return load<int16_t>(p);
    case Type::kU32:
      return load<uint32_t>(p);
    case Type::kI32:
      return load<int32_t>(p);
    case Type::kI64:
      return load<int64_t>(p);
    case Type::kU64:
      too_large = load<uint64_t>(p) > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      return static_cast<int64_t>(load<uint64_t>(p));
    default:
      return std::nullopt;
  }
}

const GgufValue* find(const GgufFile& file, std::string_view key) {
  const auto it = file.values().find(key);
  return it == file.values().end() ? nullptr : &it->second;
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : file_(path) {
  Cursor in(file_);
  version_ = read_version(in);
  // The least a tensor takes: length of the name, one dimension, type, offset. A key: length, type, one byte.
  const uint64_t n_tensors = in.count("tensors", 8 + 4 + 8 + 4 + 8, kTensorsMax);
  const uint64_t n_keys = in.count("keys", 8 + 4 + 1, kKeysMax);
  for (uint64_t i = 0; i < n_keys; ++i) {
    const uint64_t start = in.at();
    std::string key = in.name("a key");
    if (key.empty()) in.fail(start, "a key has no name");
    GgufValue value = read_value(in, "key " + quoted(key));
    const auto [it, is_new] = values_.emplace(std::move(key), value);
    if (!is_new) in.fail(start, "key " + quoted(it->first) + " is there twice");
  }
  std::vector<Entry> entries;
  entries.reserve(n_tensors);
  for (uint64_t i = 0; i < n_tensors; ++i) {
    const uint64_t start = in.at();
    entries.push_back(read_entry(in));
    if (!by_name_.emplace(entries.back().tensor.name, i).second) {
      in.fail(start, "tensor " + quoted(entries.back().tensor.name) + " is there twice");
    }
  }
  const uint64_t alignment = read_alignment(in, *this);
  const auto data_offset = checked_round_up(in.at(), alignment);
  if (!data_offset) in.fail(in.at(), "general.alignment of " + std::to_string(alignment) + " is impossible");
  data_offset_ = *data_offset;

  std::vector<const Entry*> placed;
  placed.reserve(n_tensors);
  tensors_.reserve(n_tensors);
  for (Entry& e : entries) {
    const std::string what = "tensor " + quoted(e.tensor.name);
    if (e.offset % alignment != 0) {
      in.fail(e.offset_at, what + " is at offset " + std::to_string(e.offset) + ", no multiple of the alignment " +
                               std::to_string(alignment));
    }
    const auto start = checked_add(data_offset_, e.offset);
    const auto bytes = start ? file_.slice(*start, e.tensor.view.n_bytes) : std::nullopt;
    if (!bytes) {
      in.fail(e.offset_at, what + " should have " + std::to_string(e.tensor.view.n_bytes) + " bytes at offset " +
                               std::to_string(e.offset) + " of the tensor data, beyond the end of the file");
    }
    if (e.tensor.readable) {
      e.tensor.view.data = bytes->data();
      placed.push_back(&e);
    }
  }
  refuse_overlap(in, std::move(placed));
  for (Entry& e : entries) tensors_.push_back(std::move(e.tensor));
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  if (v->type != Type::kString) wrong_type(*this, key, *v, "a string");
  return std::string(reinterpret_cast<const char*>(v->bytes.data()), v->bytes.size());
}

std::optional<uint64_t> GgufFile::integer(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  bool above_int64 = false;
  const auto i = v->type == Type::kBool ? std::nullopt : integer_at(v->type, v->bytes.data(), above_int64);
  if (!i) wrong_type(*this, key, *v, "an integer");
  if (*i < 0 && !above_int64) wrong_type(*this, key, *v, "an integer of 0 or more");
  return static_cast<uint64_t>(*i);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  if (v->type == Type::kF32) return load<float>(v->bytes.data());
  if (v->type == Type::kF64) return load<double>(v->bytes.data());
  if (v->type == Type::kU64) return static_cast<double>(load<uint64_t>(v->bytes.data()));
  bool above_int64 = false;
  const auto i = v->type == Type::kBool ? std::nullopt : integer_at(v->type, v->bytes.data(), above_int64);
  if (!i) wrong_type(*this, key, *v, "a number");
  return static_cast<double>(*i);
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  if (v->type != Type::kBool) wrong_type(*this, key, *v, "a bool");
  return v->bytes[0] != std::byte{0};
}

std::optional<std::vector<std::string>> GgufFile::texts(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  if (v->type != Type::kArray || v->element != Type::kString) wrong_type(*this, key, *v, "an array of strings");
  std::vector<std::string> out;
  out.reserve(v->count);
  const std::byte* p = v->bytes.data();  // lengths were checked on opening
  for (uint64_t i = 0; i < v->count; ++i) {
    const auto n = load<uint64_t>(p);
    out.emplace_back(reinterpret_cast<const char*>(p + 8), n);
    p += 8 + n;
  }
  return out;
}

std::optional<std::vector<float>> GgufFile::floats(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  const bool is_f32 = v->element == Type::kF32;
  if (v->type != Type::kArray || !(is_f32 || v->element == Type::kF64)) {
    wrong_type(*this, key, *v, "an array of floats");
  }
  std::vector<float> out;
  out.reserve(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    const double value = is_f32 ? load<float>(v->bytes.data() + 4 * i) : load<double>(v->bytes.data() + 8 * i);
    if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
      wrong_type(*this, key, *v, "an array of numbers that fit a float32");
    }
    out.push_back(static_cast<float>(value));
  }
  return out;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufValue* v = find(*this, key);
  if (v == nullptr) return std::nullopt;
  if (v->type != Type::kArray) wrong_type(*this, key, *v, "an array of integers");
  const uint64_t each = scalar_bytes(static_cast<uint32_t>(v->element)).value_or(0);
  std::vector<int64_t> out;
  out.reserve(v->count);
  for (uint64_t i = 0; i < v->count; ++i) {
    bool too_large = false;
    const auto value = integer_at(v->element, v->bytes.data() + each * i, too_large);
    if (!value || too_large) wrong_type(*this, key, *v, "an array of integers below 2^63");
    out.push_back(*value);
  }
  return out;
}

std::string main_type_name(const GgufFile& file) {
  std::map<std::string, uint64_t> bytes;
  for (const auto& t : file.tensors())
    bytes[t.readable ? dtype_info(t.view.dtype).name : "type " + std::to_string(t.raw_type)] += t.view.n_bytes;
  const auto most =
      std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? "" : most->first;
}

}  // namespace cento
