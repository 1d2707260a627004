#include "graph/description/nnapi_rules.h"

namespace pumice {
namespace {

constexpr RuleText kNnapiRules[] = {
    {"NG2", "a tensor is not empty, unless its operation allows that"},
    {"NG7", "the activation of a recurrent cell is the code of NONE, RELU, RELU6, TANH or SIGMOID"},
    {"NL1", "an LSTM without a projection has as many outputs as cells"},
    {"NL6",
     "the operands of a gate, of peepholes, of a projection and of layer norms of an LSTM are all given or all omitted, and clips are 0 or "
     "more"},
    {"NL7", "the sizes of the weights, biases, states and layer norms of an LSTM match its numbers of inputs, cells and outputs"},
    {"ND1", "a box is [x1, y1, x2, y2] with x1 <= x2 and y1 <= y2; uint16 boxes have a scale of 0.125 and a zero point of 0"},
    {"N1.3", "TRANSPOSE_CONV_2D: strides are positive, leading padding is 0 or more, and the output is not empty on any axis"},
    {"N1.4", "TRANSPOSE_CONV_2D: the output shape has four sizes, with positive height and width"},
    {"N1.7", "TRANSPOSE_CONV_2D: the sizes of the filter, and of the input except the batch, are positive"},
    {"N3.1",
     "QUANTIZED_LSTM: the intermediate scales of the gates are positive, and weights, peepholes, layer norms and cells have a zero point "
     "of 0"},
    {"N3.3", "QUANTIZED_LSTM: the scale of the cell state is a power of two from 2^-15 to 2^-9"},
    {"N4.1", "QUANTIZED_16BIT_LSTM: operands have the sizes, scales and zero points that the operation prescribes, and match each other"},
    {"N6.1", "BIDIRECTIONAL_SEQUENCE_LSTM: the weights of each direction match the size of the sequence that it reads"},
    {"N6.4",
     "BIDIRECTIONAL_SEQUENCE_LSTM: auxiliary weights require an auxiliary input; all gates of both directions have them or none, and sizes "
     "match"},
    {"N6.5", "BIDIRECTIONAL_SEQUENCE_LSTM: both directions omit the same operands"},
    {"N7.2", "RNN: the sizes of weights, biases and states match each other and the input"},
    {"N8.1",
     "UNIDIRECTIONAL_SEQUENCE_RNN: the sizes of weights, biases and states match each other and the input, and the layout flag is 0 or 1"},
    {"N9.1", "BIDIRECTIONAL_SEQUENCE_RNN: the sizes of weights, biases and states of each direction match each other and the input"},
    {"N9.3",
     "BIDIRECTIONAL_SEQUENCE_RNN: auxiliary weights require an auxiliary input; both directions have them or neither, and sizes match"},
    {"N10.1", "SVDF: the state has as many rows as the input"},
    {"N10.2", "SVDF: the rank is positive and divides the number of filters, whose sizes match the input"},
    {"N10.3", "SVDF: the activation is the code of NONE, RELU, RELU1, RELU6, TANH or SIGMOID"},
    {"N11.1",
     "ROI_ALIGN and ROI_POOLING: input sizes, output sizes and size ratios are positive, sampling ratios are 0 or more, and the type of "
     "the boxes matches the image"},
    {"N11.2", "ROI_ALIGN and ROI_POOLING: boxes are within their image, and its index is within the batch"},
    {"N13.1", "AXIS_ALIGNED_BBOX_TRANSFORM: there are four numbers per box and class, and an image index per box"},
    {"N13.2", "AXIS_ALIGNED_BBOX_TRANSFORM: the image index of a box is within the batch"},
    {"N14.1",
     "BOX_WITH_NMS_LIMIT: there are a background, a class and four numbers per box and class; the method is known, and sigma is positive "
     "for Gaussian NMS"},
    {"N14.3", "BOX_WITH_NMS_LIMIT: image indices of boxes are 0 or more"},
    {"N15.1", "GENERATE_PROPOSALS: the sizes, types and scales of scores, boxes, anchors and images match"},
    {"N16.1",
     "DETECTION_POSTPROCESSING: there are a background, a class and four numbers per box; scales and counts are positive, and thresholds "
     "are 0 or more"},
    {"N17.1", "HEATMAP_MAX_KEYPOINT: heatmaps are square, at least 2 x 2, with one box each"},
    {"N18.1",
     "LSH_PROJECTION: the type is 1, 2 or 3; weights are given only for type 2, one per row of the input, and a hash has at most 32 bits"},
    {"N19.2", "HASHTABLE_LOOKUP: there are as many keys as values"},
    {"N20.1", "RANDOM_MULTINOMIAL: the number of samples is positive, and there are two seeds"},
    {"N21.1", "DENSIFY: there are two operands, one entry per list and a format (0 or 1) per level, and at most one block per axis"},
    {"N21.2", "DENSIFY: the order is a permutation of the axes, followed by the blocks in their order"},
    {"N21.4",
     "DENSIFY: sizes are positive, blocks have ascending axes, and the segments and indices of each level are in range, with a value for "
     "each position"},
};

}  // namespace

std::span<const RuleText> get_nnapi_rules() {
  return kNnapiRules;
}

}  // namespace pumice
