// One function per operator: what it may read, and what it makes. The rows of the table of operators point to them.
#pragma once

namespace bitedge {

class Inference;

namespace infer {

void normalize(Inference& in);
void image_conv2d(Inference& in);
void binary_conv2d(Inference& in);
void conv2d(Inference& in);
void elementwise(Inference& in);
void max_pool2d(Inference& in);
void avg_pool2d(Inference& in);
void layer_norm(Inference& in);
void softmax(Inference& in);
void concat(Inference& in);
void gather_channels(Inference& in);
void group_norm(Inference& in);
void adaptive_avg_pool2d(Inference& in);

}  // namespace infer
}  // namespace bitedge
