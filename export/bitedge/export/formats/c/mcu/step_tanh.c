/* By its series near 0, where 1 - 2 / (exp(2y) + 1) would lose its digits. */
void bitedge_step_tanh(const bitedge_step* step, float* y, const bitedge_place* place) {
  int32_t i;
  (void)step;
  for (i = 0; i < place->count; i++) {
    const float square = y[i] * y[i];
    if (square < 0.0625f) {
      y[i] *=
          1 + square * (-0.333333333f + square * (0.133333333f + square * (-0.0539682540f + square * 0.0218694885f)));
    } else {
      y[i] = 1 - 2 / (bitedge_exp(2 * y[i]) + 1);
    }
  }
}
