// Parses IPU (image processing unit) commands.
#include <algorithm>

#include "dv/commands/command_reader.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kMaxTextureSide = 4095, kMaxRectangleSide = 4094;
constexpr int32_t kMinStride = -32768, kMaxStride = 32767;

class IpuParser {
 public:
  IpuParser(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw) : reader_(reader), raw_(raw) {}

  IpuCommand parse() const {
    IpuCommand command{{}, {}, reader_.read_address(raw_.wr, "wr"), raw_};
    if (raw_.use_tex != 0) command.tex = reader_.read_address(raw_.tex, "tex");
    if (raw_.use_rd != 0) command.rd = reader_.read_address(raw_.rd, "rd");
    reader_.require(raw_.use_tex != 0 || raw_.use_rd != 0, "use_tex, use_rd", "at least one of them", "neither");
    check_format("fmt_wr", raw_.fmt_wr, {DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_RGBFP16});
    check_side("rect_width", raw_.rect_width, kMaxRectangleSide);
    check_side("rect_height", raw_.rect_height, kMaxRectangleSide);
    check_stride("stride_wr", raw_.stride_wr);
    check_channel_order();
    if (raw_.use_tex != 0) check_texture(command);
    if (raw_.use_rd != 0) check_input_image(command);
    reader_.require(raw_.fmt_wr != DMP_DV_RGBFP16 || raw_.cnv_type <= DMP_DV_CNV_FP16_DIV_255, "cnv_type", "0 or 1", raw_.cnv_type);
    const auto row = static_cast<int64_t>(raw_.rect_width * get_bytes_per_pixel(raw_.fmt_wr)), pitch = std::abs(int64_t{raw_.stride_wr});
    reader_.require(pitch == 0 || pitch >= row || raw_.rect_height == 1, "stride_wr",
                    "rows that do not overlap, of " + std::to_string(row) + " bytes", raw_.stride_wr);
    check_rows("wr", command.wr, raw_.fmt_wr, raw_.rect_width, raw_.rect_height, raw_.stride_wr);
    return command;
  }

 private:
  void check_format(const char* field, uint8_t actual, std::initializer_list<int> formats) const {
    std::string names;
    for (const int format : formats) names += (names.empty() ? "" : ", ") + std::to_string(format);
    reader_.require(std::ranges::find(formats, actual) != formats.end(), field, "a format among " + names, actual);
  }
  void check_side(const char* field, uint32_t actual, uint32_t max_size) const {
    reader_.require(actual > 0, field, "at least 1", actual);
    reader_.require_strict(actual <= max_size, field, "at most " + std::to_string(max_size), actual);
  }
  void check_stride(const char* field, int32_t actual) const {
    reader_.require_strict(actual >= kMinStride && actual <= kMaxStride, field, "from -32768 to 32767 bytes", actual);
  }

  void check_channel_order() const {
    const bool has_alpha = raw_.fmt_wr == DMP_DV_RGBA8888;
    const int last = has_alpha ? 3 : 2;
    const int8_t indices[] = {raw_.ridx, raw_.gidx, raw_.bidx, raw_.aidx};
    const char* const names[] = {"ridx", "gidx", "bidx", "aidx"};
    for (int i = 0; i <= last; ++i) {
      reader_.require(indices[i] >= 0 && indices[i] <= last, names[i], "a position from 0 to " + std::to_string(last), indices[i]);
      for (int j = 0; j < i; ++j)
        reader_.require(indices[i] != indices[j], names[i], std::string("a position other than ") + names[j], indices[i]);
    }
  }

  void check_texture(const IpuCommand& command) const {
    check_format("fmt_tex", raw_.fmt_tex, {DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_LUT});
    check_side("tex_width", raw_.tex_width, kMaxTextureSide);
    check_side("tex_height", raw_.tex_height, kMaxTextureSide);
    reader_.require(raw_.ncolor_lut <= std::size(raw_.lut), "ncolor_lut", "at most " + std::to_string(std::size(raw_.lut)),
                    raw_.ncolor_lut);
    check_rows("tex", command.tex, raw_.fmt_tex, raw_.tex_width, raw_.tex_height, 0);
  }

  void check_input_image(const IpuCommand& command) const {
    check_format("fmt_rd", raw_.fmt_rd, {DMP_DV_RGBA8888, DMP_DV_RGB888});
    check_stride("stride_rd", raw_.stride_rd);
    reader_.require(raw_.stride_rd != 0, "stride_rd", "a nonzero stride", "0");
    check_rows("rd", command.rd, raw_.fmt_rd, raw_.rect_width, raw_.rect_height, raw_.stride_rd);
  }

  // Checks that all rows are within the memory. `step`: row stride in bytes; 0 means tightly packed.
  void check_rows(const char* name, const MemoryAddress& address, uint8_t image_format, uint32_t width, uint32_t height,
                  int64_t step) const {
    const auto row = static_cast<int64_t>(width * get_bytes_per_pixel(image_format));
    const int64_t pitch = step == 0 ? row : step, last = (static_cast<int64_t>(height) - 1) * pitch;
    const std::string slot(name);
    reader_.check_address(slot, address, static_cast<uint64_t>(std::max(last, int64_t{0}) + row), kVendorAlignment);
    reader_.require(last >= 0 || static_cast<uint64_t>(-last) <= address.offset, slot + ".offs",
                    "at least the " + std::to_string(last < 0 ? -last : 0) + " bytes of the preceding rows",
                    static_cast<int64_t>(address.offset), EINVAL);
  }

  const CommandReader& reader_;
  const dmp_dv_cmdraw_ipu_v0& raw_;
};

}  // namespace

uint64_t get_bytes_per_pixel(uint8_t format) {
  switch (format) {
    case DMP_DV_RGBA8888:
      return 4;
    case DMP_DV_RGB888:
      return 3;
    case DMP_DV_RGBFP16:
      return 6;
    default:
      return 1;
  }
}

uint64_t IpuCommand::output_row_bytes() const {
  return raw.rect_width * get_bytes_per_pixel(raw.fmt_wr);
}

int64_t IpuCommand::output_stride() const {
  return raw.stride_wr == 0 ? static_cast<int64_t>(output_row_bytes()) : raw.stride_wr;
}

IpuCommand parse_ipu(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw) {
  return IpuParser(reader, raw).parse();
}

}  // namespace pumice::dv
