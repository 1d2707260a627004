// Plays an Intel GPU without its hardware, for Mesa's Vulkan driver ANV: LD_PRELOAD=i915_shim.so I915_SHIM_DEVICE=tgl.
// It answers libdrm's enumeration with one device whose render node is /dev/null, and the i915 kernel interface's requests on it. Buffers
// are ranges of one sparse memfd. Nothing is executed: submissions and waits succeed at once.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static const struct Device {
  const char *name;
  uint16_t pci_id;
  int slices, subslices, eus, has_local_memory, revision, timestamp_hz;
} kDevices[] = {
    {"skl", 0x1912, 1, 3, 8, 0, 0, 12000000},
    {"icl", 0x8a52, 1, 8, 8, 0, 7, 12000000},
    {"tgl", 0x9a49, 1, 6, 16, 0, 1, 19200000},
    {"adl", 0x46a6, 1, 6, 16, 0, 12, 19200000},
    {"dg2", 0x56a0, 8, 4, 16, 1, 8, 19200000},
};

static const struct Device *get_device(void) {
  const char *name = getenv("I915_SHIM_DEVICE");
  for (size_t i = 0; i < sizeof kDevices / sizeof *kDevices; ++i)
    if (name && strcmp(kDevices[i].name, name) == 0) return &kDevices[i];
  fprintf(stderr, "i915_shim: I915_SHIM_DEVICE is '%s'; expected skl, icl, tgl, adl or dg2\n", name ? name : "");
  abort();
}

// ---- libdrm's enumeration (xf86drm.h)

struct PciBus {
  uint16_t domain;
  uint8_t bus, dev, func;
};
struct PciInfo {
  uint16_t vendor, device, subvendor, subdevice;
  uint8_t revision;
};
struct DrmDevice {
  char **nodes;
  int available_nodes, bus_type;
  struct PciBus *bus;
  struct PciInfo *info;
};
enum { kRenderNode = 2, kNodes = 3 };

static struct DrmDevice *make_device(void) {
  struct Everything {
    struct DrmDevice device;
    char *nodes[kNodes];
    struct PciBus bus;
    struct PciInfo info;
  } *all = calloc(1, sizeof *all);
  all->nodes[0] = "/dev/null", all->nodes[1] = "", all->nodes[kRenderNode] = "/dev/null";
  all->bus = (struct PciBus){0, 0, 2, 0};
  all->info = (struct PciInfo){0x8086, get_device()->pci_id, 0x8086, 0, (uint8_t)get_device()->revision};
  all->device = (struct DrmDevice){all->nodes, 1 << kRenderNode, 0, &all->bus, &all->info};
  return &all->device;
}

int drmGetDevices2(uint32_t flags, struct DrmDevice *devices[], int count) {
  (void)flags;
  if (devices && count > 0) devices[0] = make_device();
  return 1;
}
int drmGetDevices(struct DrmDevice *devices[], int count) { return drmGetDevices2(0, devices, count); }
int drmGetDevice2(int fd, uint32_t flags, struct DrmDevice **device) {
  (void)fd, (void)flags;
  *device = make_device();
  return 0;
}
int drmGetDevice(int fd, struct DrmDevice **device) { return drmGetDevice2(fd, 0, device); }
void drmFreeDevice(struct DrmDevice **device) {
  free(*device);
  *device = NULL;
}
void drmFreeDevices(struct DrmDevice *devices[], int count) {
  for (int i = 0; i < count; ++i) drmFreeDevice(&devices[i]);
}

// ---- buffers: handle n is the range [n << kSizeBits, (n + 1) << kSizeBits) of the memfd, mapped at kMapBase plus that

enum { kSizeBits = 33 };
static const uint64_t kMapBase = UINT64_C(1) << 62;
static int memory_fd = -1;
static uint32_t next_handle = 1;

static uint32_t make_buffer(void) {
  if (memory_fd < 0) {
    memory_fd = memfd_create("i915_shim", MFD_CLOEXEC);
    if (memory_fd < 0 || ftruncate(memory_fd, INT64_C(1) << 61)) perror("i915_shim: memfd"), abort();
  }
  return __atomic_fetch_add(&next_handle, 1, __ATOMIC_RELAXED);
}

typedef void *MmapFunction(void *, size_t, int, int, int, off_t);

void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
  static MmapFunction *next;
  if (!next) next = (MmapFunction *)dlsym(RTLD_NEXT, "mmap");
  if (fd >= 0 && (uint64_t)offset >= kMapBase) fd = memory_fd, offset -= (off_t)kMapBase;
  return next(address, size, protection, flags, fd, offset);
}
void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap(address, size, protection, flags, fd, offset);
}

// ---- requests of the kernel interface (drm.h, i915_drm.h)

struct Version {
  int major, minor, patch;
  size_t name_size;
  char *name;
  size_t date_size;
  char *date;
  size_t text_size;
  char *text;
};

static void copy_text(char *target, size_t *size, const char *text) {
  if (target) memcpy(target, text, *size < strlen(text) ? *size : strlen(text));
  *size = strlen(text);
}

static int get_parameter(int number) {
  const struct Device *device = get_device();
  switch (number) {
    case 4: return device->pci_id;
    case 18: return 3;   // address space: full per process
    case 30: case 40: return 4;  // mappings by offset
    case 32: return device->revision;
    case 33: return device->slices * device->subslices;
    case 34: return device->slices * device->subslices * device->eus;
    case 17: return !device->has_local_memory;  // shared last-level cache
    case 51: case 57: return device->timestamp_hz;
    case 56: return 0;   // no probe of user pointers
    default: return 1;
  }
}

struct QueryItem {
  uint64_t id;
  int32_t size;
  uint32_t flags;
  uint64_t data;
};
struct Topology {
  uint16_t flags, max_slices, max_subslices, max_eus, subslice_offset, subslice_stride, eu_offset, eu_stride;
  uint8_t bits[512];
};
struct Engines {
  uint32_t count, reserved[3];
  struct {
    uint16_t kind, instance;
    uint32_t reserved0;
    uint64_t flags, capabilities;
    uint16_t logical_instance, reserved1[3];
    uint64_t reserved2[3];
  } engines[2];
};
struct Regions {
  uint32_t count, reserved[3];
  struct {
    uint16_t kind, instance;
    uint32_t reserved0;
    uint64_t size, free_size, reserved1[8];
  } regions[2];
};

static void answer(struct QueryItem *item, const void *data, size_t size) {
  if (item->size == 0)
    item->size = (int32_t)size;
  else if (item->size < (int32_t)size)
    item->size = -EINVAL;
  else
    memcpy((void *)(uintptr_t)item->data, data, size), item->size = (int32_t)size;
}

static void answer_topology(struct QueryItem *item) {
  const struct Device *device = get_device();
  struct Topology all = {0, (uint16_t)device->slices, (uint16_t)device->subslices, (uint16_t)device->eus, 1, 1, 0, 0, {0}};
  all.eu_offset = (uint16_t)(1 + device->slices), all.eu_stride = (uint16_t)((device->eus + 7) / 8);
  all.bits[0] = (uint8_t)((1 << device->slices) - 1);
  for (int s = 0; s < device->slices; ++s) all.bits[1 + s] = (uint8_t)((1 << device->subslices) - 1);
  const int eu_bytes = device->slices * device->subslices * all.eu_stride;
  for (int i = 0; i < eu_bytes; ++i) all.bits[all.eu_offset + i] = 0xff;
  answer(item, &all, offsetof(struct Topology, bits) + all.eu_offset + (size_t)eu_bytes);
}

static void answer_query(struct QueryItem *item) {
  const struct Device *device = get_device();
  switch (item->id & 0xffff) {
    case 1: case 6: answer_topology(item); return;
    case 2: {  // engines: render and copy
      struct Engines all = {.count = 2};
      all.engines[1].kind = 1;
      answer(item, &all, sizeof all);
      return;
    }
    case 4: {  // memory: system, and local
      struct Regions all = {.count = 1u + (uint32_t)device->has_local_memory};
      for (int i = 0; i < 2; ++i) all.regions[i].kind = (uint16_t)i, all.regions[i].size = all.regions[i].free_size = UINT64_C(8) << 30;
      if (device->has_local_memory) all.regions[1].reserved1[0] = UINT64_C(8) << 30;  // all of it visible to the host
      answer(item, &all, sizeof all - (device->has_local_memory ? 0 : sizeof all.regions[1]));
      return;
    }
    default: item->size = -EINVAL;
  }
}

static int answer_request(unsigned number, void *argument) {
  uint32_t *words = argument;
  uint64_t *longs = argument;
  switch (number) {
    case 0x00: {  // VERSION
      struct Version *version = argument;
      version->major = 1, version->minor = 6, version->patch = 0;
      copy_text(version->name, &version->name_size, "i915");
      copy_text(version->date, &version->date_size, "20201103");
      copy_text(version->text, &version->text_size, "i915_shim");
      return 0;
    }
    case 0x0c: longs[1] = 1; return 0;          // GET_CAP
    case 0x2d: words[2] = (uint32_t)memory_fd; return 0;  // PRIME_HANDLE_TO_FD
    case 0xbf: words[0] = make_buffer(); return 0;        // SYNCOBJ_CREATE
    case 0xc3: case 0xca: return 0;                       // SYNCOBJ_WAIT, SYNCOBJ_TIMELINE_WAIT
    case 0xcb: return 0;                                  // SYNCOBJ_QUERY
    case 0x40 + 0x06: *(int *)(uintptr_t)longs[1] = get_parameter((int)words[0]); return 0;  // GETPARAM
    case 0x40 + 0x1b: case 0x40 + 0x3c: words[2] = make_buffer(); return 0;                  // GEM_CREATE, GEM_CREATE_EXT
    case 0x40 + 0x23: longs[1] = longs[2] = UINT64_C(1) << 47; return 0;                     // GEM_GET_APERTURE
    case 0x40 + 0x24: longs[1] = kMapBase + ((uint64_t)words[0] << kSizeBits); return 0;     // GEM_MMAP_OFFSET
    case 0x40 + 0x2d: words[0] = 1; return 0;                                                // GEM_CONTEXT_CREATE
    case 0x40 + 0x33: words[5] = make_buffer(); return 0;                                    // GEM_USERPTR
    case 0x40 + 0x34: longs[2] = longs[1] == 3 ? UINT64_C(1) << 48 : 0; return 0;            // GEM_CONTEXT_GETPARAM
    case 0x40 + 0x39: {                                                                      // QUERY
      struct QueryItem *items = (struct QueryItem *)(uintptr_t)longs[1];
      for (uint32_t i = 0; i < words[0]; ++i) answer_query(&items[i]);
      return 0;
    }
    case 0x40 + 0x3a: words[3] = 1; return 0;  // GEM_VM_CREATE
    default: return 0;
  }
}

typedef int IoctlFunction(int, unsigned long, void *);

int ioctl(int fd, unsigned long request, ...) {
  static IoctlFunction *next;
  va_list arguments;
  va_start(arguments, request);
  void *argument = va_arg(arguments, void *);
  va_end(arguments);
  if (_IOC_TYPE(request) == 'd') return answer_request(_IOC_NR(request), argument);
  if (!next) next = (IoctlFunction *)dlsym(RTLD_NEXT, "ioctl");
  return next(fd, request, argument);
}
