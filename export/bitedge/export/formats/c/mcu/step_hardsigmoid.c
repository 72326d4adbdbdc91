void bitedge_step_hardsigmoid(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  (void)step;
  for (i = 0; i < place->count; i++) {
    const float shifted = y[i] + 3;
    y[i] = (shifted < 0 ? 0 : shifted > 6 ? 6 : shifted) / 6;
  }
}
