void bitedge_step_add_bits(const bitedge_step* step, float* y, const bitedge_place* place) {
  const bitedge_word* other =
      (const bitedge_word*)place->inputs[step->input] + place->pixel * ((place->channels + 31) >> 5);
  int32_t i;
  for (i = 0; i < place->count; i++) {
    const int32_t channel = place->first + i;
    y[i] += other[channel >> 5] >> (channel & 31) & 1 ? -1.0f : 1.0f;
  }
}
