// Workgroup barrier that also makes writes to coherent buffers visible. barrier() orders only shared memory. Both fences are needed: with
// one, reads on its other side could be reordered across the barrier.
void buffer_barrier() {
  memoryBarrierBuffer();
  barrier();
  memoryBarrierBuffer();
}
