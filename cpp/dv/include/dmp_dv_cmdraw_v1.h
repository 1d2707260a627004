/* Commands of version 1. */
#ifndef DMP_DV_CMDRAW_V1_H_
#define DMP_DV_CMDRAW_V1_H_

#include "dmp_dv_cmdraw_v0.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dmp_dv_cmdraw_conv_v1 {
  struct dmp_dv_cmdraw header;
  struct dmp_dv_buf u8tofp16_table; /* 3 x 256 float16; no mem: the input is float16 */
  uint16_t to_bgr;                  /* nonzero: swap channels 0 and 2 after the conversion */
  uint16_t rsvd[3];
  struct dmp_dv_cmdraw_conv_v0 conv_cmd;
};

#ifdef __cplusplus
}
#endif

#endif
