/* Steps in float, one after the other on a block, then floats, bits or both. */
void bitedge_finish_floats(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                           float* floats, bitedge_word* bits) {
  const int32_t words = (place->channels + 31) >> 5;
  int32_t i;
  for (i = 0; i < epilogue->step_count; i++) epilogue->steps[i].apply(&epilogue->steps[i], sums->y, place);
  if (bits) {
    bitedge_word* const out = bits + place->pixel * words;
    for (i = 0; i < place->count; i++) {
      const int32_t channel = place->first + i;
      if (!(channel & 31)) out[channel >> 5] = 0;
      out[channel >> 5] |= (uint32_t)(sums->y[i] < 0) << (channel & 31);
    }
  }
  if (floats) {
    memcpy(floats + place->pixel * place->channels + place->first, sums->y, (uint32_t)place->count * sizeof(float));
  }
}
