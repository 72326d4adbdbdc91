void bitedge_step_prelu_one(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  for (i = 0; i < place->count; i++) y[i] = y[i] < 0 ? step->a[0] * y[i] : y[i];
}
