void bitedge_group_norm(int32_t pixels, int32_t channels, int32_t groups, const float* weight, const float* bias,
                        float eps, const float* in, float* out) {
  const int32_t size = channels / groups;
  int32_t group, pixel, c;
  for (group = 0; group < groups; group++) {
    float mean = 0, variance = 0, scale;
    for (pixel = 0; pixel < pixels; pixel++) {
      for (c = group * size; c < (group + 1) * size; c++) mean += in[pixel * channels + c];
    }
    mean /= (float)(pixels * size);
    for (pixel = 0; pixel < pixels; pixel++) {
      for (c = group * size; c < (group + 1) * size; c++) {
        const float away = in[pixel * channels + c] - mean;
        variance += away * away;
      }
    }
    scale = bitedge_rsqrt(variance / (float)(pixels * size) + eps);
    for (pixel = 0; pixel < pixels; pixel++) {
      for (c = group * size; c < (group + 1) * size; c++) {
        out[pixel * channels + c] = (in[pixel * channels + c] - mean) * scale * weight[c] + bias[c];
      }
    }
  }
}
