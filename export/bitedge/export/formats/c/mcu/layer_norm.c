void bitedge_layer_norm(int32_t pixels, int32_t channels, const float* weight, const float* bias, float eps,
                        const float* in, float* out) {
  int32_t c;
  for (; pixels > 0; pixels--, in += channels, out += channels) {
    float mean = 0, variance = 0, scale;
    for (c = 0; c < channels; c++) mean += in[c];
    mean /= (float)channels;
    for (c = 0; c < channels; c++) variance += (in[c] - mean) * (in[c] - mean);
    scale = bitedge_rsqrt(variance / (float)channels + eps);
    for (c = 0; c < channels; c++) out[c] = (in[c] - mean) * scale * weight[c] + bias[c];
  }
}
