/* Commands of version 0. */
#ifndef DMP_DV_CMDRAW_V0_H_
#define DMP_DV_CMDRAW_V0_H_

#include "dmp_dv.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One run of a convolution command:
 *   [convolution] [+ eltwise_buf] [max pooling or upsampling] [activation] [rectification], or
 *   [average pooling] [+ eltwise_buf] [activation] [rectification], or local response normalization.
 * (x, y) fields have x in the low and y in the high byte. */
struct dmp_dv_cmdraw_conv_v0_run {
  struct dmp_dv_buf weight_buf; /* packed weights */
  uint32_t conv_pad; /* left bits 0-6, right 8-15, top 16-22, bottom 24-31; padding of a deconvolution applies to the zero-stuffed input */
  uint32_t pool_pad; /* left, right, top, bottom: one byte each */
  uint16_t m;        /* output channels */
  uint16_t conv_enable;    /* 0 none, 1 convolution, 3 depthwise, 5 deconvolution, 7 depthwise deconvolution */
  uint16_t p;              /* kernel size (x, y); y = 0: same as x */
  uint16_t pz;             /* kernel depth: 1 */
  uint16_t conv_stride;    /* (x, y) */
  uint16_t conv_dilation;  /* (x, y); 0 means 1 */
  uint16_t weight_fmt;     /* 0 or 1 float16, 3 8-bit indices and a table */
  uint16_t pool_enable;    /* 0 none, 1 max, 2 average, 4 upsampling by 2 */
  uint16_t pool_avg_param; /* float16: factor of the sum in average pooling */
  uint16_t pool_size;      /* (x, y) */
  uint16_t pool_stride;    /* (x, y) */
  uint16_t actfunc;        /* 0 none, 1 tanh, 2 leaky ReLU, 3 sigmoid, 4 PReLU, 5 ELU, 6 ReLU6 */
  uint16_t actfunc_param;  /* float16: slope of leaky ReLU */
  uint16_t rectifi_en;     /* nonzero: absolute value */
  uint16_t lrn;            /* bit 0 enable, bit 1 power function, bits 8-11 log2 of the input's down-scale */
  uint16_t rsvd;
};

struct dmp_dv_cmdraw_conv_v0 {
  struct dmp_dv_cmdraw header;
  struct dmp_dv_buf input_buf;
  struct dmp_dv_buf output_buf;
  struct dmp_dv_buf eltwise_buf; /* used if output_mode is 1; if it has no memory, the input is added */
  uint32_t topo;                 /* bit i: run i writes output_buf; else it feeds run i + 1 */
  uint16_t w;                    /* input width */
  uint16_t h;
  uint16_t z; /* depth: 1 */
  uint16_t c;
  uint16_t input_circular_offset; /* batch size, 0 means 1; 0x8000: "weights transposed", x innermost in tensors */
  uint16_t output_mode;           /* 1: elementwise addition */
  struct dmp_dv_cmdraw_conv_v0_run run[32];
};

struct dmp_dv_cmdraw_fc_v0 {
  struct dmp_dv_cmdraw header;
  struct dmp_dv_buf weight_buf; /* packed weights */
  struct dmp_dv_buf input_buf;
  struct dmp_dv_buf output_buf;
  uint16_t input_size; /* elements */
  uint16_t output_size;
  uint16_t weight_fmt;    /* 0 float16, 1 8-bit indices and a table */
  uint16_t actfunc;       /* 0 none, 1 ReLU, 2 tanh, 3 leaky ReLU, 4 sigmoid, 5 PReLU */
  uint16_t actfunc_param; /* float16: slope of leaky ReLU */
  uint16_t rsvd[3];
};

struct dmp_dv_cmdraw_ipu_v0 {
  struct dmp_dv_cmdraw header;
  struct dmp_dv_buf tex; /* image to scale */
  struct dmp_dv_buf rd;  /* image to blend with */
  struct dmp_dv_buf wr;  /* output image */
  uint8_t fmt_tex;       /* DMP_DV_RGBA8888, DMP_DV_RGB888 or DMP_DV_LUT */
  uint8_t fmt_rd;        /* DMP_DV_RGBA8888 or DMP_DV_RGB888 */
  uint8_t fmt_wr;        /* DMP_DV_RGBA8888, DMP_DV_RGB888 or DMP_DV_RGBFP16 */
  uint8_t rsvd1;
  uint16_t tex_width;
  uint16_t tex_height;
  uint16_t rect_width; /* output size */
  uint16_t rect_height;
  int32_t stride_rd; /* row stride in bytes */
  int32_t stride_wr;
  uint32_t lut[32];        /* palette of DMP_DV_LUT */
  uint8_t ncolor_lut;      /* 0: keep the previous palette */
  uint8_t alpha;           /* texture alpha if use_const_alpha is set */
  uint8_t transpose;       /* nonzero: swap x and y of the texture */
  uint8_t use_const_alpha; /* nonzero: `alpha` replaces the pixels' alpha */
  uint8_t use_tex;
  uint8_t use_rd;
  uint8_t blf; /* nonzero: bilinear, else nearest */
  int8_t ridx; /* position of red in a pixel */
  int8_t gidx;
  int8_t bidx;
  int8_t aidx;
  uint8_t cnv_type;     /* DMP_DV_CNV_FP16_... */
  uint8_t cnv_param[3]; /* for red, green and blue */
  uint8_t rsvd2[5];
};

struct dmp_dv_cmdraw_maximizer_v0 {
  struct dmp_dv_cmdraw header;
  struct dmp_dv_buf input_buf;
  struct dmp_dv_buf output_buf; /* one byte per pixel */
  uint16_t width;
  uint16_t height;
  uint8_t nclass; /* channels */
  uint8_t rsvd[3];
};

#ifdef __cplusplus
}
#endif

#endif
