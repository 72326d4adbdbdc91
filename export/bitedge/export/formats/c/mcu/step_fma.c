void bitedge_step_fma(const bitedge_step* step, float* y, const bitedge_place* place) {
  const float *scale = step->a + place->first, *bias = step->b + place->first;
  int32_t i;
  for (i = 0; i < place->count; i++) y[i] = bitedge_fma(y[i], scale[i], bias[i]);
}
