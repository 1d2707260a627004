// The invocations of a workgroup meet, and read from there on what each of them has written into coherent buffers before. barrier() orders
// shared memory alone; with a fence on one side of it, reads of the other side could be taken before it.
void buffer_barrier() {
  memoryBarrierBuffer();
  barrier();
  memoryBarrierBuffer();
}
