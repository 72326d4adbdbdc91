void bitedge_elementwise(const bitedge_elementwise_layer* layer, const float* input, const bitedge_io* io) {
  bitedge_place place = {0, 0, 0, layer->channels, io->inputs};
  bitedge_sums sums;
  for (; place.pixel < layer->pixels; place.pixel++) {
    for (place.first = 0; place.first < layer->channels; place.first += place.count) {
      const int32_t left = layer->channels - place.first;
      place.count = left < BITEDGE_BLOCK ? left : BITEDGE_BLOCK;
      memcpy(sums.y, input + place.pixel * layer->channels + place.first, (uint32_t)place.count * sizeof(float));
      layer->epilogue.finish(&layer->epilogue, &sums, &place, io->floats, io->bits);
    }
  }
}
