// Parses just enough of the protobuf wire format: https://protobuf.dev/programming-guides/encoding
#include "core/files/onnx_skeleton.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace pumice {
namespace {

constexpr uint64_t kMinStrippedBytes = 1024;  // minimum size of tensors to strip; smaller ones stay inline
constexpr int kMaxDepth = 100;                // nesting limit of messages, the same as protobuf's
constexpr size_t kWindow = 4096;              // bytes per read: tensor headers are far apart

// Thrown if the bytes are not valid protobuf or use an unsupported part of the format.
struct MalformedProto {};

enum class Wire : uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
enum class Message : uint8_t { none, model, function, graph, node, attribute, sparse_tensor, tensor };

// Returns the message type of a field of `parent`; nullopt if the field cannot contain a tensor.
Message message_type(Message parent, uint64_t field) {
  switch (parent) {
    case Message::model:
      return field == 7 ? Message::graph : field == 25 ? Message::function : Message::none;
    case Message::function:
      return field == 7 ? Message::node : field == 11 ? Message::attribute : Message::none;
    case Message::graph:
      return field == 1 ? Message::node : field == 5 ? Message::tensor : field == 15 ? Message::sparse_tensor : Message::none;
    case Message::node:
      return field == 5 ? Message::attribute : Message::none;
    case Message::attribute:
      if (field == 5 || field == 10) return Message::tensor;
      if (field == 6 || field == 11) return Message::graph;
      return field == 22 || field == 23 ? Message::sparse_tensor : Message::none;
    case Message::sparse_tensor:
      return field == 1 || field == 2 ? Message::tensor : Message::none;
    default:
      return Message::none;
  }
}

// Field numbers of TensorProto.
constexpr uint64_t kDataType = 2, kFloatData = 4, kRawData = 9, kDoubleData = 10, kExternalData = 13, kDataLocation = 14;
constexpr uint64_t kFloat = 1, kDouble = 11;  // TensorProto.DataType values
constexpr uint64_t kExternal = 1;             // TensorProto.DataLocation value

// Byte range in the file.
struct Range {
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
};

struct Field {
  uint64_t number = 0;
  Wire wire = Wire::varint;
  uint64_t begin = 0;
  Range contents;
};

class Source {
 public:
  Source(std::span<const std::byte> bytes, const MappedFile* file) : bytes_(bytes), file_(file) {}

  uint64_t size() const { return bytes_.size(); }

  uint8_t operator[](uint64_t at) {
    if (!file_) return std::to_integer<uint8_t>(bytes_[at]);
    if (at < window_.begin || at >= window_.end) {
      window_ = {at, std::min<uint64_t>(at + kWindow, size())};
      file_->read(bytes_.data() + at, std::span(buffer_).first(window_.bytes()));
    }
    return std::to_integer<uint8_t>(buffer_[at - window_.begin]);
  }

  void append(const Range& range, std::string& out) const {
    const size_t before = out.size();
    out.resize(before + range.bytes());
    const std::span target = std::as_writable_bytes(std::span(out)).subspan(before);
    if (file_)
      file_->read(bytes_.data() + range.begin, target);
    else
      std::ranges::copy(bytes_.subspan(range.begin, range.bytes()), target.begin());
  }

 private:
  std::span<const std::byte> bytes_;
  const MappedFile* file_;
  Range window_;
  std::array<std::byte, kWindow> buffer_;
};

void append_varint(uint64_t value, std::string& out) {
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

void append_field(uint64_t number, std::string_view contents, std::string& out) {
  append_varint(number << 3 | static_cast<uint64_t>(Wire::length), out);
  append_varint(contents.size(), out);
  out += contents;
}

class Skeleton {
 public:
  Skeleton(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location)
      : source_(bytes, file), location_(location) {}

  std::string make() { return strip_tensors({0, source_.size()}, Message::model, 0); }

 private:
  // Decodes a varint at `at` and advances `at` past it.
  uint64_t read_varint(uint64_t& at, uint64_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      const uint8_t byte = source_[at++];
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
    throw MalformedProto();
  }

  // Reads the field at `at` and advances `at` past it.
  Field read_field(uint64_t& at, uint64_t end) {
    Field read{.begin = at};
    const uint64_t tag = read_varint(at, end);
    read.number = tag >> 3;
    read.wire = static_cast<Wire>(tag & 7);
    uint64_t bytes = 0;
    if (read.wire == Wire::length) bytes = read_varint(at, end);
    read.contents.begin = at;
    if (read.wire == Wire::varint)
      read_varint(at, end);
    else if (read.wire == Wire::fixed64)
      bytes = 8;
    else if (read.wire == Wire::fixed32)
      bytes = 4;
    else if (read.wire != Wire::length)
      throw MalformedProto();
    if (bytes > end - at) throw MalformedProto();
    at += bytes;
    read.contents.end = at;
    return read;
  }

  std::string strip_tensors(const Range& range, Message message, int depth) {
    if (depth > kMaxDepth) throw MalformedProto();
    if (message == Message::tensor) return strip_tensor(range);
    std::string out;
    uint64_t copied_end = range.begin;
    for (uint64_t at = range.begin; at < range.end;) {
      const Field child = read_field(at, range.end);
      const Message child_type = message_type(message, child.number);
      if (child.wire != Wire::length || child_type == Message::none || child.contents.bytes() < kMinStrippedBytes) continue;
      source_.append({copied_end, child.begin}, out);
      append_field(child.number, strip_tensors(child.contents, child_type, depth + 1), out);
      copied_end = at;
    }
    source_.append({copied_end, range.end}, out);
    return out;
  }

  std::string strip_tensor(const Range& range) {
    std::vector<Field> fields;
    uint64_t data_type = 0;
    bool is_external = false;
    for (uint64_t at = range.begin; at < range.end;) {
      const Field& child = fields.emplace_back(read_field(at, range.end));
      is_external = is_external || child.number == kExternalData || child.number == kDataLocation;
      if (uint64_t begin = child.contents.begin; child.number == kDataType && child.wire == Wire::varint)
        data_type = read_varint(begin, range.end);
    }
    // A packed float field has the same bytes as raw_data.
    const auto is_raw = [&](const Field& child) {
      return child.wire == Wire::length && (child.number == kRawData || (child.number == kFloatData && data_type == kFloat) ||
                                            (child.number == kDoubleData && data_type == kDouble));
    };
    const auto raw = std::ranges::find_if(fields, is_raw);
    std::string out;
    if (is_external || raw == fields.end() || raw->contents.bytes() < kMinStrippedBytes || std::ranges::count_if(fields, is_raw) > 1) {
      source_.append(range, out);
      return out;
    }
    source_.append({range.begin, raw->begin}, out);
    append_entry("location", location_, out);
    append_entry("offset", std::to_string(raw->contents.begin), out);
    append_entry("length", std::to_string(raw->contents.bytes()), out);
    append_varint(kDataLocation << 3 | static_cast<uint64_t>(Wire::varint), out);
    append_varint(kExternal, out);
    source_.append({raw->contents.end, range.end}, out);
    return out;
  }

  static void append_entry(std::string_view key, std::string_view value, std::string& out) {
    std::string entry;
    append_field(1, key, entry);
    append_field(2, value, entry);
    append_field(kExternalData, entry, out);
  }

  Source source_;
  std::string_view location_;
};

}  // namespace

std::optional<std::string> onnx_skeleton(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location) {
  if (bytes.size() < kMinStrippedBytes) return {};
  try {
    return Skeleton(bytes, file, location).make();
  } catch (const MalformedProto&) {
    return {};
  }
}

}  // namespace pumice
