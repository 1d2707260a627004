// Statistics of two sets of numbers as one's (Chan, Golub, LeVeque 1983).
// How many there are, their mean and the sum of their squared deviations.
vec3 merged(vec3 a, vec3 b) {
  if (b.x == 0.0) return a;
  if (a.x == 0.0) return b;
  const float total = a.x + b.x;
  precise float delta = b.y - a.y;
  return vec3(total, a.y + delta * pm_divide(b.x, total), a.z + (b.z + delta * delta * pm_divide(a.x * b.x, total)));
}
