void bitedge_step_sigmoid(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  (void)step;
  for (i = 0; i < place->count; i++) y[i] = 1 / (1 + bitedge_exp(-y[i]));
}
