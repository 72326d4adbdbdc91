void bitedge_step_relu(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  (void)step;
  for (i = 0; i < place->count; i++) y[i] = y[i] < 0 ? 0 : y[i];
}
