/* The dv driver interface: contexts, memory, command lists and weight packing.
 *
 * Handles are counted: what creates or retains one releases it; a release to 0 destroys it. An object keeps what it is made of, so that
 * handles may be released in any order. Unless stated otherwise a function returns 0, or another number and leaves a text for
 * dmp_dv_get_last_error_message(). */
#ifndef DMP_DV_H_
#define DMP_DV_H_

#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dmp_dv_context_impl* dmp_dv_context;
typedef struct dmp_dv_mem_impl* dmp_dv_mem;
typedef struct dmp_dv_cmdlist_impl* dmp_dv_cmdlist;

/* Flags of dmp_dv_mem_to_device() and dmp_dv_mem_to_cpu(). */
#define DMP_DV_MEM_CPU_WONT_READ 1
#define DMP_DV_MEM_AS_DEV_OUTPUT 2
#define DMP_DV_MEM_CPU_HADNT_READ 4

/* Kinds of devices, and of the commands that they take. */
#define DMP_DV_DEV_CONV 1
#define DMP_DV_DEV_FC 2
#define DMP_DV_DEV_IPU 3
#define DMP_DV_DEV_MAXIMIZER 4
#define DMP_DV_DEV_COUNT 5

/* Formats of images. */
#define DMP_DV_RGBA8888 0
#define DMP_DV_RGB888 1
#define DMP_DV_RGBFP16 2
#define DMP_DV_LUT 7

/* Conversions of an image to DMP_DV_RGBFP16: value - parameter of the channel; value / 255. */
#define DMP_DV_CNV_FP16_SUB 0
#define DMP_DV_CNV_FP16_DIV_255 1

/* What a query of information begins with. */
struct dmp_dv_info {
  uint32_t size;    /* of the whole structure, in bytes */
  uint32_t version; /* of it; set by the call */
};

struct dmp_dv_info_v0 {
  struct dmp_dv_info header;
  int32_t ub_size;            /* of the unified buffer, in bytes */
  int32_t max_kernel_size;    /* of a convolution's side */
  int32_t conv_freq;          /* not 0: convolutions are there */
  int32_t fc_freq;            /* not 0: fully connected layers are there */
  int32_t max_fc_vector_size; /* elements */
  int32_t rsvd;
};

/* A place in a memory. */
struct dmp_dv_buf {
  __extension__ union {
    dmp_dv_mem mem;
    uint64_t rsvd;
  };
  uint64_t offs; /* in bytes */
};

/* What every command begins with. */
struct dmp_dv_cmdraw {
  uint32_t size;       /* of the whole command, in bytes */
  uint8_t device_type; /* DMP_DV_DEV_... */
  uint8_t version;
  uint8_t rsvd[2];
};

/* Static text: major.minor.date. */
const char* dmp_dv_get_version_string(void);
/* The text of the last error in the process; never NULL. */
const char* dmp_dv_get_last_error_message(void);
/* Sets that text as printf would; prints it too where the environment has VERBOSITY of 1 or more. */
void dmp_dv_set_last_error_message(const char* format, ...);

/* NULL where there is no device. */
dmp_dv_context dmp_dv_context_create(void);
/* Lives as long as the context. */
const char* dmp_dv_context_get_info_string(dmp_dv_context ctx);
/* Fills a structure whose size is set. */
int dmp_dv_context_get_info(dmp_dv_context ctx, struct dmp_dv_info* info);
/* The count after the call. */
int dmp_dv_context_release(dmp_dv_context ctx);
int dmp_dv_context_retain(dmp_dv_context ctx);
/* 1 where there is a device of that kind, 0 where there is none, below 0 on an error. */
int dmp_dv_device_exists(dmp_dv_context ctx, int dev_type_id);
int dmp_dv_fpga_device_exists(dmp_dv_context ctx, int dev_type_id);

/* At least `size` bytes, of undefined content; NULL on an error. */
dmp_dv_mem dmp_dv_mem_alloc(dmp_dv_context ctx, size_t size);
/* The count after the call. */
int dmp_dv_mem_release(dmp_dv_mem mem);
int dmp_dv_mem_retain(dmp_dv_mem mem);
/* All of the memory, readable and writable; the same address every time until dmp_dv_mem_unmap(). NULL on an error. */
uint8_t* dmp_dv_mem_map(dmp_dv_mem mem);
void dmp_dv_mem_unmap(dmp_dv_mem mem);
/* Begins access by the CPU: after a start with `rd` it sees what the device made, after the end of one with `wr` the device sees what it
 * wrote. */
int dmp_dv_mem_sync_start(dmp_dv_mem mem, int rd, int wr);
int dmp_dv_mem_sync_end(dmp_dv_mem mem);
/* Bytes, a multiple of the page size. */
size_t dmp_dv_mem_get_size(dmp_dv_mem mem);
/* Bytes of all memories of the process. */
int64_t dmp_dv_mem_get_total_size(void);
/* Makes a range visible to the device, or to the CPU, at once. */
int dmp_dv_mem_to_device(dmp_dv_mem mem, size_t offs, size_t size, int flags);
int dmp_dv_mem_to_cpu(dmp_dv_mem mem, size_t offs, size_t size, int flags);

/* NULL on an error. */
dmp_dv_cmdlist dmp_dv_cmdlist_create(dmp_dv_context ctx);
/* The count after the call. A release to 0 waits for the list's executions. */
int dmp_dv_cmdlist_release(dmp_dv_cmdlist cmdlist);
int dmp_dv_cmdlist_retain(dmp_dv_cmdlist cmdlist);
/* Checks a command, copies it and retains its memories. */
int dmp_dv_cmdlist_add_raw(dmp_dv_cmdlist cmdlist, struct dmp_dv_cmdraw* cmd);
/* Prepares the list; nothing can be added from here on. Weights are unpacked here, and again by an execution where their memory was
 * published since, or where a command of this or another list writes them. */
int dmp_dv_cmdlist_commit(dmp_dv_cmdlist cmdlist);
/* Queues one execution and returns its id, above 0; below 0 on an error. */
int64_t dmp_dv_cmdlist_exec(dmp_dv_cmdlist cmdlist);
/* Returns once the execution has finished. */
int dmp_dv_cmdlist_wait(dmp_dv_cmdlist cmdlist, int64_t exec_id);
/* Microseconds on the device of the execution that was waited for last; 0 before that, -1 on an error. */
int64_t dmp_dv_cmdlist_get_last_exec_time(dmp_dv_cmdlist cmdlist);

/* Packs weights, in the order (kernel, channel, y, x): float16, or indices into `quant_map` where that is given. With
 * *packed_weights_size of 0 nothing is written; it is set to the bytes that are needed. `prelu` may be NULL. */
int dmp_dv_pack_conv_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                             const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size);
/* The same for a convolution with a dilation above 1. */
int dmp_dv_pack_dil_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                            const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size);
/* Packs the weights of a fully connected layer, in the order (output channel, y, x, input channel, y, x). */
int dmp_dv_pack_fc_weights(int c_input, int h_input, int w_input, int c_output, int h_output, int w_output, const uint16_t quant_map[256],
                           const void* weights, const uint16_t* bias, uint8_t* packed_weights, size_t* packed_weights_size);

#ifdef __cplusplus
}
#endif

#endif
