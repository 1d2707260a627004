// Merges (count, mean, sum of squared deviations) of two sets: Chan, Golub, LeVeque 1983.
vec3 welford_combine(vec3 a, vec3 b) {
  if (b.x == 0.0) return a;
  if (a.x == 0.0) return b;
  const float total = a.x + b.x;
  precise float delta = b.y - a.y;
  return vec3(total, a.y + delta * pm_divide(b.x, total), a.z + (b.z + delta * delta * pm_divide(a.x * b.x, total)));
}
