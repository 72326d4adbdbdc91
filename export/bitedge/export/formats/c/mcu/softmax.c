void bitedge_softmax(int32_t pixels, int32_t channels, const float* in, float* out) {
  int32_t c;
  for (; pixels > 0; pixels--, in += channels, out += channels) {
    float largest = in[0], sum = 0;
    for (c = 1; c < channels; c++) largest = in[c] > largest ? in[c] : largest;
    for (c = 0; c < channels; c++) sum += out[c] = bitedge_exp(in[c] - largest);
    for (c = 0; c < channels; c++) out[c] /= sum;
  }
}
