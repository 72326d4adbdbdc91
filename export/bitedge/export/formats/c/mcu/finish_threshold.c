/* Bits by thresholds: bit 1, which means -1, where sum < threshold. */
void bitedge_finish_threshold(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                              float* floats, bitedge_word* bits) {
  const int32_t first = place->first, count = place->count, words = (place->channels + 31) >> 5;
  bitedge_word* const out = bits + place->pixel * words + (first >> 5);
  const int32_t* sum = sums->sum;
  int32_t i;
  (void)floats;
  if (count == 32 && !(first & 31) && epilogue->threshold) {
    const int16_t* threshold = epilogue->threshold + first;
    uint32_t word = 0;
    for (i = 0; i < 32; i += 4, sum += 4, threshold += 4) {
      word = (word >> 1) | ((uint32_t)(sum[0] - threshold[0]) & 0x80000000u);
      word = (word >> 1) | ((uint32_t)(sum[1] - threshold[1]) & 0x80000000u);
      word = (word >> 1) | ((uint32_t)(sum[2] - threshold[2]) & 0x80000000u);
      word = (word >> 1) | ((uint32_t)(sum[3] - threshold[3]) & 0x80000000u);
    }
    *out = word;
    return;
  }
  for (i = 0; i < count; i++) {
    const int32_t bit = (first + i) & 31;
    const int32_t threshold =
        epilogue->threshold ? epilogue->threshold[first + i] : epilogue->wide_threshold[first + i];
    bitedge_word* const word = out + (((first & 31) + i) >> 5);
    if (bit == 0) *word = 0;
    *word |= (uint32_t)(sum[i] < threshold) << bit;
  }
}
