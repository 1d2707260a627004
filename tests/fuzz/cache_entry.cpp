// Fuzzes on-disk cache entries: damaged or foreign files, and shader payloads with a valid hash.
//
// The first byte of an input, modulo 3, selects the meaning of the rest: a file, a bit to flip and a payload, or a shader payload.
#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "core/files/cache_file.h"
#include "shader/shader_cache.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

constexpr const char* kKind = "graphs";
constexpr const char* kName = "ab";

// A temporary cache folder for this process, removed at exit.
class CacheFolder {
 public:
  CacheFolder() : path_((fs::temp_directory_path() / "pumice-fuzz-XXXXXX").string()) {
    if (!mkdtemp(path_.data())) std::abort();
    setenv("PUMICE_CACHE_DIR", path_.c_str(), 1);
    setenv("PUMICE_CACHE_MB", "0", 1);
    unsetenv("PUMICE_NO_CACHE");
    if (!pumice::write_cache_entry(kKind, kName, {})) std::abort();
  }
  ~CacheFolder() { fs::remove_all(path_); }

  fs::path entry() const { return fs::path(path_) / "pumice" / kKind / (std::string(kName) + ".graph"); }

 private:
  std::string path_;
};

void require(bool condition, const char* text) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", text);
  std::abort();
}

bool is_equal(Bytes a, Bytes b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

// Returns the file of an entry with kKind, kName and this payload.
std::vector<std::byte> file_of(Bytes payload) {
  const pumice::CacheHeader header = pumice::make_cache_header(kKind, kName, payload);
  const Bytes begin = std::as_bytes(std::span(&header, 1));
  std::vector<std::byte> file(begin.begin(), begin.end());
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

// Checks that any file that reads as an entry is identical to what the cache would write for its payload.
void try_file(Bytes file) {
  static const CacheFolder folder;
  std::ofstream(folder.entry(), std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<std::streamsize>(file.size()));
  const auto payload = pumice::read_cache_entry(kKind, kName);
  if (payload) require(is_equal(file, file_of(*payload)), "a file was read that the cache does not write");
  const bool is_ours = file.size() >= 8 && std::memcmp(file.data(), pumice::kCacheMagic.data(), pumice::kCacheMagic.size()) == 0 &&
                       std::isdigit(std::to_integer<int>(file[6])) && std::isdigit(std::to_integer<int>(file[7]));
  require(pumice::get_cache_usage()->files == (is_ours ? 1u : 0u), "a foreign file was counted, or an entry was not");
  pumice::prune_cache();
  // With a limit of 0, entries with allocated disk blocks are removed.
  require(is_ours || fs::exists(folder.entry()), "a foreign file was removed");
}

// Checks that an entry is accepted, and rejected if one bit is flipped. place: index of the bit.
void try_bit(uint16_t place, Bytes payload) {
  std::vector<std::byte> file = file_of(payload);
  const auto is_read = [&] {
    pumice::CacheHeader header;
    std::memcpy(&header, file.data(), sizeof header);
    return pumice::matches_cache_header(header, kKind, kName, Bytes(file).subspan(sizeof header));
  };
  require(is_read(), "an entry was not read");
  file[place / 8 % file.size()] ^= std::byte(1 << place % 8);
  require(!is_read(), "an entry with a changed bit was read");
}

// Checks that a parsed shader survives a round trip through serialization.
void try_shader(Bytes payload) {
  const auto shader = pumice::parse_shader(payload);
  if (!shader) return;
  const auto again = pumice::serialize_shader(*shader);
  const auto parsed = pumice::parse_shader(again);
  require(parsed && is_equal(again, pumice::serialize_shader(*parsed)), "a shader was not the same after a round trip");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (size < 3) return 0;
  switch (data[0] % 3) {
    case 0:
      try_file(bytes.subspan(1));
      break;
    case 1:
      try_bit(static_cast<uint16_t>(data[1] | data[2] << 8), bytes.subspan(3));
      break;
    default:
      try_shader(bytes.subspan(1));
  }
  return 0;
}
