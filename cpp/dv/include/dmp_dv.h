/* The dv driver interface: contexts, memory, command lists and weight packing.
 *
 * Handles are reference-counted: release what you create or retain; a count of 0 destroys the object. Objects retain their dependencies,
 * so handles may be released in any order. Unless stated otherwise, a function returns 0, or an error code and sets the message of
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

/* Kinds of devices and of their commands. */
#define DMP_DV_DEV_CONV 1
#define DMP_DV_DEV_FC 2
#define DMP_DV_DEV_IPU 3
#define DMP_DV_DEV_MAXIMIZER 4
#define DMP_DV_DEV_COUNT 5

/* Image formats. */
#define DMP_DV_RGBA8888 0
#define DMP_DV_RGB888 1
#define DMP_DV_RGBFP16 2
#define DMP_DV_LUT 7

/* Conversions to DMP_DV_RGBFP16: value - cnv_param of the channel; value / 255. */
#define DMP_DV_CNV_FP16_SUB 0
#define DMP_DV_CNV_FP16_DIV_255 1

/* Header of every information structure. */
struct dmp_dv_info {
  uint32_t size;    /* whole structure, in bytes */
  uint32_t version; /* of the structure; set by the call */
};

struct dmp_dv_info_v0 {
  struct dmp_dv_info header;
  int32_t ub_size;            /* unified buffer, in bytes */
  int32_t max_kernel_size;    /* maximum kernel width and height */
  int32_t conv_freq;          /* nonzero: supports convolutions */
  int32_t fc_freq;            /* nonzero: supports fully connected layers */
  int32_t max_fc_vector_size; /* elements */
  int32_t rsvd;
};

/* An offset in a memory. */
struct dmp_dv_buf {
  __extension__ union {
    dmp_dv_mem mem;
    uint64_t rsvd;
  };
  uint64_t offs; /* in bytes */
};

/* Header of every command. */
struct dmp_dv_cmdraw {
  uint32_t size;       /* whole command, in bytes */
  uint8_t device_type; /* DMP_DV_DEV_... */
  uint8_t version;
  uint8_t rsvd[2];
};

/* Returns a static string: major.minor.date. */
const char* dmp_dv_get_version_string(void);
/* Returns the process-wide last error message; never NULL. */
const char* dmp_dv_get_last_error_message(void);
/* Sets that message with printf formatting; also prints it if the environment variable VERBOSITY is at least 1. */
void dmp_dv_set_last_error_message(const char* format, ...);

/* Returns NULL if there is no device. */
dmp_dv_context dmp_dv_context_create(void);
/* The string is valid as long as the context. */
const char* dmp_dv_context_get_info_string(dmp_dv_context ctx);
/* Fills a structure; set its size field first. */
int dmp_dv_context_get_info(dmp_dv_context ctx, struct dmp_dv_info* info);
/* Return the new reference count. */
int dmp_dv_context_release(dmp_dv_context ctx);
int dmp_dv_context_retain(dmp_dv_context ctx);
/* Return 1 if a device of that kind exists, else 0; negative on error. */
int dmp_dv_device_exists(dmp_dv_context ctx, int dev_type_id);
int dmp_dv_fpga_device_exists(dmp_dv_context ctx, int dev_type_id);

/* Allocates at least `size` uninitialized bytes; returns NULL on error. */
dmp_dv_mem dmp_dv_mem_alloc(dmp_dv_context ctx, size_t size);
/* Return the new reference count. */
int dmp_dv_mem_release(dmp_dv_mem mem);
int dmp_dv_mem_retain(dmp_dv_mem mem);
/* Maps the whole memory for reading and writing. Returns the same address until dmp_dv_mem_unmap(); NULL on error. */
uint8_t* dmp_dv_mem_map(dmp_dv_mem mem);
void dmp_dv_mem_unmap(dmp_dv_mem mem);
/* Begin and end CPU access. With `rd`, the CPU sees the device's writes after the start; with `wr`, the device sees the CPU's writes after
 * the end. */
int dmp_dv_mem_sync_start(dmp_dv_mem mem, int rd, int wr);
int dmp_dv_mem_sync_end(dmp_dv_mem mem);
/* Returns bytes, a multiple of the page size. */
size_t dmp_dv_mem_get_size(dmp_dv_mem mem);
/* Returns the bytes of all memories of the process. */
int64_t dmp_dv_mem_get_total_size(void);
/* Make a range visible to the device, or to the CPU, immediately. */
int dmp_dv_mem_to_device(dmp_dv_mem mem, size_t offs, size_t size, int flags);
int dmp_dv_mem_to_cpu(dmp_dv_mem mem, size_t offs, size_t size, int flags);

/* Returns NULL on error. */
dmp_dv_cmdlist dmp_dv_cmdlist_create(dmp_dv_context ctx);
/* Return the new reference count. The last release waits for the list's executions. */
int dmp_dv_cmdlist_release(dmp_dv_cmdlist cmdlist);
int dmp_dv_cmdlist_retain(dmp_dv_cmdlist cmdlist);
/* Checks a command, copies it and retains its memories. */
int dmp_dv_cmdlist_add_raw(dmp_dv_cmdlist cmdlist, struct dmp_dv_cmdraw* cmd);
/* Prepares the list; it accepts no more commands. Unpacks the weights; an execution unpacks them again if their memory was published since,
 * or if a command of this or another list writes them. */
int dmp_dv_cmdlist_commit(dmp_dv_cmdlist cmdlist);
/* Queues one execution and returns its id, greater than 0; negative on error. */
int64_t dmp_dv_cmdlist_exec(dmp_dv_cmdlist cmdlist);
/* Waits for the execution to finish. */
int dmp_dv_cmdlist_wait(dmp_dv_cmdlist cmdlist, int64_t exec_id);
/* Returns the device time in microseconds of the execution last waited for; 0 before that, -1 on error. */
int64_t dmp_dv_cmdlist_get_last_exec_time(dmp_dv_cmdlist cmdlist);

/* Packs weights in the order (kernel, channel, y, x): float16, or indices into `quant_map` if it is not NULL. If *packed_weights_size is 0,
 * only sets it to the required size. `prelu` may be NULL. */
int dmp_dv_pack_conv_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                             const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size);
/* The same for a dilated convolution. */
int dmp_dv_pack_dil_weights(int n_channels, int kx, int ky, int n_kernels, const uint16_t quant_map[256], const void* weights,
                            const uint16_t* bias, const uint16_t* prelu, uint8_t* packed_weights, size_t* packed_weights_size);
/* Packs the weights of a fully connected layer in the order (output channel, y, x, input channel, y, x). */
int dmp_dv_pack_fc_weights(int c_input, int h_input, int w_input, int c_output, int h_output, int w_output, const uint16_t quant_map[256],
                           const void* weights, const uint16_t* bias, uint8_t* packed_weights, size_t* packed_weights_size);

#ifdef __cplusplus
}
#endif

#endif
