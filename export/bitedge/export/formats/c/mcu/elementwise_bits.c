void bitedge_elementwise_bits(const bitedge_elementwise_layer* layer, const bitedge_word* input, const bitedge_io* io) {
  bitedge_place place = {0, 0, 0, layer->channels, io->inputs};
  bitedge_sums sums;
  int32_t i;
  for (; place.pixel < layer->pixels; place.pixel++) {
    for (place.first = 0; place.first < layer->channels; place.first += place.count) {
      const int32_t left = layer->channels - place.first;
      const uint32_t word = *input++;
      place.count = left < BITEDGE_BLOCK ? left : BITEDGE_BLOCK;
      for (i = 0; i < place.count; i++) sums.y[i] = word >> i & 1 ? -1.0f : 1.0f;
      layer->epilogue.finish(&layer->epilogue, &sums, &place, io->floats, io->bits);
    }
  }
}
