// Parses just enough of the protobuf wire format: https://protobuf.dev/programming-guides/encoding
#include "core/files/tensor_data_stripper.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace pumice {
namespace {

constexpr uint64_t kMinStrippedBytes = 1024;  // minimum size of tensors to strip; smaller ones stay inline
constexpr int kMaxDepth = 100;                // nesting limit of messages, the same as protobuf's
constexpr size_t kWindow = 4096;              // bytes per read; small, because tensor headers are far apart

// Thrown if the bytes are not valid protobuf or use an unsupported part of the format.
struct MalformedProto {};

enum class WireType : uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
enum class MessageType : uint8_t { none, model, function, graph, node, attribute, sparse_tensor, tensor };

// Returns the message type of a field of `parent`; `none` if the field cannot contain a tensor.
MessageType get_message_type(MessageType parent, uint64_t field) {
  switch (parent) {
    case MessageType::model:
      return field == 7 ? MessageType::graph : field == 25 ? MessageType::function : MessageType::none;
    case MessageType::function:
      return field == 7 ? MessageType::node : field == 11 ? MessageType::attribute : MessageType::none;
    case MessageType::graph:
      return field == 1    ? MessageType::node
             : field == 5  ? MessageType::tensor
             : field == 15 ? MessageType::sparse_tensor
                           : MessageType::none;
    case MessageType::node:
      return field == 5 ? MessageType::attribute : MessageType::none;
    case MessageType::attribute:
      if (field == 5 || field == 10) return MessageType::tensor;
      if (field == 6 || field == 11) return MessageType::graph;
      return field == 22 || field == 23 ? MessageType::sparse_tensor : MessageType::none;
    case MessageType::sparse_tensor:
      return field == 1 || field == 2 ? MessageType::tensor : MessageType::none;
    default:
      return MessageType::none;
  }
}

// Field numbers of TensorProto.
constexpr uint64_t kDataType = 2, kFloatData = 4, kRawData = 9, kDoubleData = 10, kExternalData = 13, kDataLocation = 14;
constexpr uint64_t kFloat = 1, kDouble = 11;  // TensorProto.DataType values
constexpr uint64_t kExternal = 1;             // TensorProto.DataLocation value

// Byte range in the file.
struct ByteRange {
  uint64_t begin = 0, end = 0;
  uint64_t bytes() const { return end - begin; }
};

struct ProtoField {
  uint64_t number = 0;
  WireType wire = WireType::varint;
  uint64_t begin = 0;
  ByteRange contents;
};

class ProtoReader {
 public:
  ProtoReader(std::span<const std::byte> bytes, const MappedFile* file) : bytes_(bytes), file_(file) {}

  uint64_t size() const { return bytes_.size(); }

  uint8_t operator[](uint64_t at) {
    if (!file_) return std::to_integer<uint8_t>(bytes_[at]);
    if (at < window_.begin || at >= window_.end) {
      window_ = {at, std::min<uint64_t>(at + kWindow, size())};
      file_->read(bytes_.data() + at, std::span(buffer_).first(window_.bytes()));
    }
    return std::to_integer<uint8_t>(buffer_[at - window_.begin]);
  }

  void append(const ByteRange& range, std::string& out) const {
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
  ByteRange window_;
  std::array<std::byte, kWindow> buffer_;
};

void append_varint(uint64_t value, std::string& out) {
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

void append_field(uint64_t number, std::string_view contents, std::string& out) {
  append_varint(number << 3 | static_cast<uint64_t>(WireType::length), out);
  append_varint(contents.size(), out);
  out += contents;
}

class TensorDataStripper {
 public:
  TensorDataStripper(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location)
      : source_(bytes, file), location_(location) {}

  std::string strip() { return strip_tensors({0, source_.size()}, MessageType::model, 0); }

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
  ProtoField read_field(uint64_t& at, uint64_t end) {
    ProtoField read{.begin = at};
    const uint64_t tag = read_varint(at, end);
    read.number = tag >> 3;
    read.wire = static_cast<WireType>(tag & 7);
    uint64_t bytes = 0;
    if (read.wire == WireType::length) bytes = read_varint(at, end);
    read.contents.begin = at;
    if (read.wire == WireType::varint)
      read_varint(at, end);
    else if (read.wire == WireType::fixed64)
      bytes = 8;
    else if (read.wire == WireType::fixed32)
      bytes = 4;
    else if (read.wire != WireType::length)
      throw MalformedProto();
    if (bytes > end - at) throw MalformedProto();
    at += bytes;
    read.contents.end = at;
    return read;
  }

  std::string strip_tensors(const ByteRange& range, MessageType message, int depth) {
    if (depth > kMaxDepth) throw MalformedProto();
    if (message == MessageType::tensor) return strip_tensor(range);
    std::string out;
    uint64_t copied_end = range.begin;
    for (uint64_t at = range.begin; at < range.end;) {
      const ProtoField child = read_field(at, range.end);
      const MessageType child_type = get_message_type(message, child.number);
      if (child.wire != WireType::length || child_type == MessageType::none || child.contents.bytes() < kMinStrippedBytes) continue;
      source_.append({copied_end, child.begin}, out);
      append_field(child.number, strip_tensors(child.contents, child_type, depth + 1), out);
      copied_end = at;
    }
    source_.append({copied_end, range.end}, out);
    return out;
  }

  std::string strip_tensor(const ByteRange& range) {
    std::vector<ProtoField> fields;
    uint64_t data_type = 0;
    bool is_external = false;
    for (uint64_t at = range.begin; at < range.end;) {
      const ProtoField& child = fields.emplace_back(read_field(at, range.end));
      is_external = is_external || child.number == kExternalData || child.number == kDataLocation;
      if (uint64_t begin = child.contents.begin; child.number == kDataType && child.wire == WireType::varint)
        data_type = read_varint(begin, range.end);
    }
    // A packed float field has the same bytes as raw_data.
    const auto is_raw = [&](const ProtoField& child) {
      return child.wire == WireType::length && (child.number == kRawData || (child.number == kFloatData && data_type == kFloat) ||
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
    append_varint(kDataLocation << 3 | static_cast<uint64_t>(WireType::varint), out);
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

  ProtoReader source_;
  std::string_view location_;
};

}  // namespace

std::optional<std::string> strip_tensor_data(std::span<const std::byte> bytes, const MappedFile* file, std::string_view location) {
  if (bytes.size() < kMinStrippedBytes) return {};
  try {
    return TensorDataStripper(bytes, file, location).strip();
  } catch (const MalformedProto&) {
    return {};
  }
}

}  // namespace pumice
