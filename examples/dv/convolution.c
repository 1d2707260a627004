/* One 3x3 convolution with ReLU through the dv interface, compared with plain C.
 *
 *   cc -std=c99 convolution.c $(pkg-config --cflags --libs dmpdv) -o convolution */
#include <dmp_dv.h>
#include <dmp_dv_cmdraw_v0.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 12, HEIGHT = 9, CHANNELS = 8, KERNELS = 8, SIDE = 3, PIXELS = WIDTH * HEIGHT };

static int value_of(int seed, int range) { return (int)((unsigned)seed * 2654435761u >> 20) % (2 * range + 1) - range; }

/* Small integers as float16. */
static uint16_t half_of(int value) {
  unsigned magnitude = value < 0 ? (unsigned)-value : (unsigned)value, exponent = 25;
  if (magnitude == 0) return 0;
  while (magnitude < 1024) magnitude <<= 1, --exponent;
  return (uint16_t)((value < 0 ? 0x8000 : 0) | exponent << 10 | (magnitude & 1023));
}

static int fail(const char *call) {
  fprintf(stderr, "%s: %s\n", call, dmp_dv_get_last_error_message());
  return 1;
}

/* Of up to 8 channels: x is outermost, the channel innermost. */
static int index_of(int c, int x, int y, int channels) { return (x * HEIGHT + y) * channels + c; }

static int expected(const int *input, const int *weights, int m, int x, int y) {
  int sum = value_of(m + 7, 3), c, kx, ky;
  for (c = 0; c < CHANNELS; ++c)
    for (ky = 0; ky < SIDE; ++ky)
      for (kx = 0; kx < SIDE; ++kx) {
        const int ix = x + kx - 1, iy = y + ky - 1;
        if (ix < 0 || iy < 0 || ix >= WIDTH || iy >= HEIGHT) continue;
        sum += input[index_of(c, ix, iy, CHANNELS)] * weights[((m * CHANNELS + c) * SIDE + ky) * SIDE + kx];
      }
  return sum < 0 ? 0 : sum;
}

int main(void) {
  static int input[PIXELS * CHANNELS], weights[KERNELS * CHANNELS * SIDE * SIDE];
  static uint16_t halves[KERNELS * CHANNELS * SIDE * SIDE], bias[KERNELS];
  const size_t output_offset = PIXELS * CHANNELS * sizeof(uint16_t);
  struct dmp_dv_cmdraw_conv_v0 command;
  dmp_dv_context context;
  dmp_dv_mem packed, data;
  dmp_dv_cmdlist list;
  uint16_t *mapped;
  size_t bytes = 0;
  int64_t id;
  int i, m, x, y, wrong = 0;

  for (i = 0; i < KERNELS * CHANNELS * SIDE * SIDE; ++i) halves[i] = half_of(weights[i] = value_of(i + 1, 2));
  for (i = 0; i < KERNELS; ++i) bias[i] = half_of(value_of(i + 7, 3));
  for (i = 0; i < PIXELS * CHANNELS; ++i) input[i] = value_of(i + 1000, 4);

  context = dmp_dv_context_create();
  if (!context) return fail("dmp_dv_context_create");
  printf("%s, %s\n", dmp_dv_get_version_string(), dmp_dv_context_get_info_string(context));

  if (dmp_dv_pack_conv_weights(CHANNELS, SIDE, SIDE, KERNELS, NULL, halves, bias, NULL, NULL, &bytes)) return fail("pack_conv_weights");
  packed = dmp_dv_mem_alloc(context, bytes);
  data = dmp_dv_mem_alloc(context, output_offset + PIXELS * KERNELS * sizeof(uint16_t));
  if (!packed || !data) return fail("dmp_dv_mem_alloc");
  if (!dmp_dv_mem_map(packed) || dmp_dv_mem_sync_start(packed, 0, 1)) return fail("dmp_dv_mem_map");
  if (dmp_dv_pack_conv_weights(CHANNELS, SIDE, SIDE, KERNELS, NULL, halves, bias, NULL, dmp_dv_mem_map(packed), &bytes))
    return fail("dmp_dv_pack_conv_weights");
  dmp_dv_mem_unmap(packed);

  mapped = (uint16_t *)dmp_dv_mem_map(data);
  if (!mapped || dmp_dv_mem_sync_start(data, 0, 1)) return fail("dmp_dv_mem_sync_start");
  for (i = 0; i < PIXELS * CHANNELS; ++i) mapped[i] = half_of(input[i]);
  if (dmp_dv_mem_sync_end(data)) return fail("dmp_dv_mem_sync_end");

  memset(&command, 0, sizeof command);
  command.header.size = sizeof command;
  command.header.device_type = DMP_DV_DEV_CONV;
  command.input_buf.mem = data;
  command.output_buf.mem = data;
  command.output_buf.offs = output_offset;
  command.topo = 1;
  command.w = WIDTH, command.h = HEIGHT, command.z = 1, command.c = CHANNELS;
  command.run[0].weight_buf.mem = packed;
  command.run[0].conv_enable = 1;
  command.run[0].m = KERNELS;
  command.run[0].p = SIDE, command.run[0].pz = 1;
  command.run[0].conv_pad = 0x01010101;
  command.run[0].conv_stride = 0x0101;
  command.run[0].weight_fmt = 1;
  command.run[0].actfunc = 2;

  list = dmp_dv_cmdlist_create(context);
  if (!list) return fail("dmp_dv_cmdlist_create");
  if (dmp_dv_cmdlist_add_raw(list, &command.header)) return fail("dmp_dv_cmdlist_add_raw");
  if (dmp_dv_cmdlist_commit(list)) return fail("dmp_dv_cmdlist_commit");
  id = dmp_dv_cmdlist_exec(list);
  if (id < 0 || dmp_dv_cmdlist_wait(list, id)) return fail("dmp_dv_cmdlist_wait");

  if (dmp_dv_mem_sync_start(data, 1, 0)) return fail("dmp_dv_mem_sync_start");
  for (m = 0; m < KERNELS; ++m)
    for (x = 0; x < WIDTH; ++x)
      for (y = 0; y < HEIGHT; ++y)
        wrong += mapped[output_offset / sizeof(uint16_t) + index_of(m, x, y, KERNELS)] != half_of(expected(input, weights, m, x, y));
  printf("%d of %d results differ; %d us on the device\n", wrong, PIXELS * KERNELS, (int)dmp_dv_cmdlist_get_last_exec_time(list));

  dmp_dv_cmdlist_release(list);
  dmp_dv_mem_release(data);
  dmp_dv_mem_release(packed);
  dmp_dv_context_release(context);
  if (dmp_dv_mem_get_total_size() != 0) return fail("memory is left");
  return wrong != 0;
}
