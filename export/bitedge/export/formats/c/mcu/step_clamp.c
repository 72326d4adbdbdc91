void bitedge_step_clamp(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  for (i = 0; i < place->count; i++) y[i] = y[i] < step->low ? step->low : y[i] > step->high ? step->high : y[i];
}
