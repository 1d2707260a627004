// Workgroup barrier that also makes writes to coherent buffers visible. barrier() orders only shared memory. Both fences are needed: with
// only one, reads on the other side of the barrier could be reordered across it.
void buffer_barrier() {
  memoryBarrierBuffer();
  barrier();
  memoryBarrierBuffer();
}
