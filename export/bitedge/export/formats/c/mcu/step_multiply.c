void bitedge_step_multiply(const bitedge_step* step, float* y, const bitedge_place* place) {
  const float* other = (const float*)place->inputs[step->input] + place->pixel * place->channels + place->first;
  int32_t i;
  for (i = 0; i < place->count; i++) y[i] *= other[i];
}
