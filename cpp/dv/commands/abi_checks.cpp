// Checks the ABI of the raw commands, on which existing programs depend.
#include <cstddef>

#include "dv/include/dmp_dv_cmdraw_v1.h"

namespace {

static_assert(sizeof(dmp_dv_info) == 8 && offsetof(dmp_dv_info, size) == 0 && offsetof(dmp_dv_info, version) == 4);
static_assert(sizeof(dmp_dv_info_v0) == 32 && offsetof(dmp_dv_info_v0, header) == 0 && offsetof(dmp_dv_info_v0, ub_size) == 8 &&
              offsetof(dmp_dv_info_v0, max_kernel_size) == 12 && offsetof(dmp_dv_info_v0, conv_freq) == 16 &&
              offsetof(dmp_dv_info_v0, fc_freq) == 20 && offsetof(dmp_dv_info_v0, max_fc_vector_size) == 24 &&
              offsetof(dmp_dv_info_v0, rsvd) == 28);
static_assert(sizeof(dmp_dv_buf) == 16 && offsetof(dmp_dv_buf, mem) == 0 && offsetof(dmp_dv_buf, rsvd) == 0 &&
              offsetof(dmp_dv_buf, offs) == 8);
static_assert(sizeof(dmp_dv_cmdraw) == 8 && offsetof(dmp_dv_cmdraw, size) == 0 && offsetof(dmp_dv_cmdraw, device_type) == 4 &&
              offsetof(dmp_dv_cmdraw, version) == 5 && offsetof(dmp_dv_cmdraw, rsvd) == 6);

using Run = dmp_dv_cmdraw_conv_v0_run;
static_assert(sizeof(Run) == 56 && offsetof(Run, weight_buf) == 0 && offsetof(Run, conv_pad) == 16 && offsetof(Run, pool_pad) == 20);
static_assert(offsetof(Run, m) == 24 && offsetof(Run, conv_enable) == 26 && offsetof(Run, p) == 28 && offsetof(Run, pz) == 30);
static_assert(offsetof(Run, conv_stride) == 32 && offsetof(Run, conv_dilation) == 34 && offsetof(Run, weight_fmt) == 36);
static_assert(offsetof(Run, pool_enable) == 38 && offsetof(Run, pool_avg_param) == 40 && offsetof(Run, pool_size) == 42);
static_assert(offsetof(Run, pool_stride) == 44 && offsetof(Run, actfunc) == 46 && offsetof(Run, actfunc_param) == 48);
static_assert(offsetof(Run, rectifi_en) == 50 && offsetof(Run, lrn) == 52 && offsetof(Run, rsvd) == 54);

using Conv = dmp_dv_cmdraw_conv_v0;
static_assert(sizeof(Conv) == 1864 && offsetof(Conv, header) == 0 && offsetof(Conv, input_buf) == 8 && offsetof(Conv, output_buf) == 24);
static_assert(offsetof(Conv, eltwise_buf) == 40 && offsetof(Conv, topo) == 56 && offsetof(Conv, w) == 60 && offsetof(Conv, h) == 62);
static_assert(offsetof(Conv, z) == 64 && offsetof(Conv, c) == 66 && offsetof(Conv, input_circular_offset) == 68);
static_assert(offsetof(Conv, output_mode) == 70 && offsetof(Conv, run) == 72);

using ConvV1 = dmp_dv_cmdraw_conv_v1;
static_assert(sizeof(ConvV1) == 1896 && offsetof(ConvV1, header) == 0 && offsetof(ConvV1, u8tofp16_table) == 8);
static_assert(offsetof(ConvV1, to_bgr) == 24 && offsetof(ConvV1, rsvd) == 26 && offsetof(ConvV1, conv_cmd) == 32);

using Fc = dmp_dv_cmdraw_fc_v0;
static_assert(sizeof(Fc) == 72 && offsetof(Fc, header) == 0 && offsetof(Fc, weight_buf) == 8 && offsetof(Fc, input_buf) == 24);
static_assert(offsetof(Fc, output_buf) == 40 && offsetof(Fc, input_size) == 56 && offsetof(Fc, output_size) == 58);
static_assert(offsetof(Fc, weight_fmt) == 60 && offsetof(Fc, actfunc) == 62 && offsetof(Fc, actfunc_param) == 64 &&
              offsetof(Fc, rsvd) == 66);

using Ipu = dmp_dv_cmdraw_ipu_v0;
static_assert(sizeof(Ipu) == 224 && offsetof(Ipu, header) == 0 && offsetof(Ipu, tex) == 8 && offsetof(Ipu, rd) == 24);
static_assert(offsetof(Ipu, wr) == 40 && offsetof(Ipu, fmt_tex) == 56 && offsetof(Ipu, fmt_rd) == 57 && offsetof(Ipu, fmt_wr) == 58);
static_assert(offsetof(Ipu, tex_width) == 60 && offsetof(Ipu, tex_height) == 62 && offsetof(Ipu, rect_width) == 64);
static_assert(offsetof(Ipu, rect_height) == 66 && offsetof(Ipu, stride_rd) == 68 && offsetof(Ipu, stride_wr) == 72);
static_assert(offsetof(Ipu, lut) == 76 && offsetof(Ipu, ncolor_lut) == 204 && offsetof(Ipu, alpha) == 205);
static_assert(offsetof(Ipu, transpose) == 206 && offsetof(Ipu, use_const_alpha) == 207 && offsetof(Ipu, use_tex) == 208);
static_assert(offsetof(Ipu, use_rd) == 209 && offsetof(Ipu, blf) == 210 && offsetof(Ipu, ridx) == 211 && offsetof(Ipu, gidx) == 212);
static_assert(offsetof(Ipu, bidx) == 213 && offsetof(Ipu, aidx) == 214 && offsetof(Ipu, cnv_type) == 215);
static_assert(offsetof(Ipu, cnv_param) == 216 && offsetof(Ipu, rsvd2) == 219);

using Maximizer = dmp_dv_cmdraw_maximizer_v0;
static_assert(sizeof(Maximizer) == 48 && offsetof(Maximizer, header) == 0 && offsetof(Maximizer, input_buf) == 8);
static_assert(offsetof(Maximizer, output_buf) == 24 && offsetof(Maximizer, width) == 40 && offsetof(Maximizer, height) == 42);
static_assert(offsetof(Maximizer, nclass) == 44 && offsetof(Maximizer, rsvd) == 45);

}  // namespace
