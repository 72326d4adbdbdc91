/* The same on integer sums. */
void bitedge_finish_integers(const bitedge_epilogue* epilogue, bitedge_sums* sums, const bitedge_place* place,
                             float* floats, bitedge_word* bits) {
  int32_t i;
  for (i = 0; i < place->count; i++) {
    const int32_t sum = sums->sum[i];
    sums->y[i] = (float)sum;
  }
  bitedge_finish_floats(epilogue, sums, place, floats, bits);
}
