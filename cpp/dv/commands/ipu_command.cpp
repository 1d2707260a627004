// Parses IPU (image processing unit) commands.
#include <algorithm>

#include "dv/commands/command_reader.h"

namespace pumice::dv {
namespace {

constexpr uint32_t kMostTexture = 4095, kMostRectangle = 4094;
constexpr int32_t kLowestStride = -32768, kMostStride = 32767;

class IpuReader {
 public:
  IpuReader(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw) : reader_(reader), raw_(raw) {}

  IpuCommand read() const {
    IpuCommand command{{}, {}, reader_.place(raw_.wr, "wr"), raw_};
    if (raw_.use_tex != 0) command.tex = reader_.place(raw_.tex, "tex");
    if (raw_.use_rd != 0) command.rd = reader_.place(raw_.rd, "rd");
    reader_.require(raw_.use_tex != 0 || raw_.use_rd != 0, "use_tex, use_rd", "at least one of them", "neither");
    format("fmt_wr", raw_.fmt_wr, {DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_RGBFP16});
    side("rect_width", raw_.rect_width, kMostRectangle);
    side("rect_height", raw_.rect_height, kMostRectangle);
    stride("stride_wr", raw_.stride_wr);
    channels();
    if (raw_.use_tex != 0) texture(command);
    if (raw_.use_rd != 0) read_image(command);
    reader_.require(raw_.fmt_wr != DMP_DV_RGBFP16 || raw_.cnv_type <= DMP_DV_CNV_FP16_DIV_255, "cnv_type", "0 or 1", raw_.cnv_type);
    const auto row = static_cast<int64_t>(raw_.rect_width * pixel_bytes(raw_.fmt_wr)), pitch = std::abs(int64_t{raw_.stride_wr});
    reader_.require(pitch == 0 || pitch >= row || raw_.rect_height == 1, "stride_wr",
                    "rows that do not overlap, of " + std::to_string(row) + " bytes", raw_.stride_wr);
    check("wr", command.wr, raw_.fmt_wr, raw_.rect_width, raw_.rect_height, raw_.stride_wr);
    return command;
  }

 private:
  void format(const char* field, uint8_t given, std::initializer_list<int> known) const {
    std::string names;
    for (const int one : known) names += (names.empty() ? "" : ", ") + std::to_string(one);
    reader_.require(std::ranges::find(known, given) != known.end(), field, "a format among " + names, given);
  }
  void side(const char* field, uint32_t given, uint32_t most) const {
    reader_.require(given > 0, field, "at least 1", given);
    reader_.require_strict(given <= most, field, "at most " + std::to_string(most), given);
  }
  void stride(const char* field, int32_t given) const {
    reader_.require_strict(given >= kLowestStride && given <= kMostStride, field, "from -32768 to 32767 bytes", given);
  }

  void channels() const {
    const bool has_alpha = raw_.fmt_wr == DMP_DV_RGBA8888;
    const int last = has_alpha ? 3 : 2;
    const int8_t indices[] = {raw_.ridx, raw_.gidx, raw_.bidx, raw_.aidx};
    const char* const names[] = {"ridx", "gidx", "bidx", "aidx"};
    for (int i = 0; i <= last; ++i) {
      reader_.require(indices[i] >= 0 && indices[i] <= last, names[i], "a position from 0 to " + std::to_string(last), indices[i]);
      for (int j = 0; j < i; ++j)
        reader_.require(indices[i] != indices[j], names[i], std::string("another position than ") + names[j], indices[i]);
    }
  }

  void texture(const IpuCommand& command) const {
    format("fmt_tex", raw_.fmt_tex, {DMP_DV_RGBA8888, DMP_DV_RGB888, DMP_DV_LUT});
    side("tex_width", raw_.tex_width, kMostTexture);
    side("tex_height", raw_.tex_height, kMostTexture);
    reader_.require(raw_.ncolor_lut <= std::size(raw_.lut), "ncolor_lut", "at most " + std::to_string(std::size(raw_.lut)),
                    raw_.ncolor_lut);
    check("tex", command.tex, raw_.fmt_tex, raw_.tex_width, raw_.tex_height, 0);
  }

  void read_image(const IpuCommand& command) const {
    format("fmt_rd", raw_.fmt_rd, {DMP_DV_RGBA8888, DMP_DV_RGB888});
    stride("stride_rd", raw_.stride_rd);
    reader_.require(raw_.stride_rd != 0, "stride_rd", "another stride than 0", "0");
    check("rd", command.rd, raw_.fmt_rd, raw_.rect_width, raw_.rect_height, raw_.stride_rd);
  }

  // Checks that all rows are within the memory. `step`: bytes between rows; 0: dense.
  void check(const char* name, const MemoryPlace& place, uint8_t image_format, uint32_t width, uint32_t height, int64_t step) const {
    const auto row = static_cast<int64_t>(width * pixel_bytes(image_format));
    const int64_t pitch = step == 0 ? row : step, last = (static_cast<int64_t>(height) - 1) * pitch;
    const std::string slot(name);
    reader_.check_place(slot, place, static_cast<uint64_t>(std::max(last, int64_t{0}) + row), kVendorAlignment);
    reader_.require(last >= 0 || static_cast<uint64_t>(-last) <= place.offset, slot + ".offs",
                    "at least the " + std::to_string(last < 0 ? -last : 0) + " bytes of the rows that lie before",
                    static_cast<int64_t>(place.offset), EINVAL);
  }

  const CommandReader& reader_;
  const dmp_dv_cmdraw_ipu_v0& raw_;
};

}  // namespace

uint64_t pixel_bytes(uint8_t format) {
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

uint64_t IpuCommand::written_row_bytes() const {
  return raw.rect_width * pixel_bytes(raw.fmt_wr);
}

int64_t IpuCommand::written_stride() const {
  return raw.stride_wr == 0 ? static_cast<int64_t>(written_row_bytes()) : raw.stride_wr;
}

IpuCommand read_ipu(const CommandReader& reader, const dmp_dv_cmdraw_ipu_v0& raw) {
  return IpuReader(reader, raw).read();
}

}  // namespace pumice::dv
