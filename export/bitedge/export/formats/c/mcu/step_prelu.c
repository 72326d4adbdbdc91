void bitedge_step_prelu(const bitedge_step* step, float* y, const bitedge_place* place) {
  const float* slope = step->a + place->first;
  int32_t i;
  for (i = 0; i < place->count; i++) y[i] = y[i] < 0 ? slope[i] * y[i] : y[i];
}
