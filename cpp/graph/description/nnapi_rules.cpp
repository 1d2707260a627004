#include "graph/description/nnapi_rules.h"

namespace pumice {
namespace {

constexpr Rule kNnapiRules[] = {
    {"NG2", "a tensor has elements, where its operation does not say that it may have none"},
    {"NG7", "the activation of a recurrent cell is NONE, RELU, RELU6, TANH or SIGMOID, by its code"},
    {"NL1", "an LSTM without a projection has as many outputs as cells"},
    {"NL6",
     "an LSTM has the operands of a gate, of peepholes, of a projection and of norms together or not at all, and clips of 0 or more"},
    {"NL7", "the sizes of an LSTM's weights, biases, states and norms fit those of its input, its cells and its outputs"},
    {"ND1", "a box is [x1, y1, x2, y2] with x1 <= x2 and y1 <= y2; one of uint16 has a scale of 0.125 and a zero point of 0"},
    {"N1.3", "TRANSPOSE_CONV_2D: strides are above 0, padding at the beginning is 0 or more, and the result has a place on each axis"},
    {"N1.4", "TRANSPOSE_CONV_2D: the shape of the result is four sizes, of which height and width are above 0"},
    {"N1.7", "TRANSPOSE_CONV_2D: the sizes of the filter, and those of the input behind the batch, are above 0"},
    {"N3.1", "QUANTIZED_LSTM: the scales between the gates are above 0, and weights, peepholes, norms and cells have a zero point of 0"},
    {"N3.3", "QUANTIZED_LSTM: the scale of the cells is a power of two from 2^-15 to 2^-9"},
    {"N4.1", "QUANTIZED_16BIT_LSTM: its operands have the sizes, scales and zero points that the operation fixes, and fit each other"},
    {"N6.1", "BIDIRECTIONAL_SEQUENCE_LSTM: the weights of each direction take as many elements as the sequence that it reads has"},
    {"N6.4",
     "BIDIRECTIONAL_SEQUENCE_LSTM: there is an auxiliary input where there are weights for it, which all gates of both directions "
     "have or none, and its sizes fit those and the input's"},
    {"N6.5", "BIDIRECTIONAL_SEQUENCE_LSTM: an operand that one direction leaves out the other leaves out too"},
    {"N7.2", "RNN: the sizes of weights, biases and states fit each other and the input"},
    {"N8.1",
     "UNIDIRECTIONAL_SEQUENCE_RNN: the sizes of weights, biases and states fit each other and the input, and the flag of the "
     "layout is 0 or 1"},
    {"N9.1", "BIDIRECTIONAL_SEQUENCE_RNN: in each direction the sizes of weights, biases and states fit each other and the input"},
    {"N9.3",
     "BIDIRECTIONAL_SEQUENCE_RNN: there is an auxiliary input where there are weights for it, which both directions have or none, "
     "and its sizes fit those and the input's"},
    {"N10.1", "SVDF: the state has as many rows as the input"},
    {"N10.2", "SVDF: the rank is above 0 and divides the number of filters, whose sizes fit the input"},
    {"N10.3", "SVDF: the activation is NONE, RELU, RELU1, RELU6, TANH or SIGMOID, by its code"},
    {"N11.1",
     "ROI_ALIGN and ROI_POOLING: sizes, those of the result and ratios of sizes are above 0, sampling ratios are 0 or more, and "
     "boxes have the type that goes with the image's"},
    {"N11.2", "ROI_ALIGN and ROI_POOLING: boxes lie on their image, which is one of the batch"},
    {"N13.1", "AXIS_ALIGNED_BBOX_TRANSFORM: there are four numbers for each box and class, and an image for each box"},
    {"N13.2", "AXIS_ALIGNED_BBOX_TRANSFORM: the image of a box is one of the batch"},
    {"N14.1",
     "BOX_WITH_NMS_LIMIT: there are a background, a class, four numbers for each box and class, a known method, and a sigma above 0 "
     "where it is gaussian"},
    {"N14.3", "BOX_WITH_NMS_LIMIT: the images of boxes are counted from 0"},
    {"N15.1", "GENERATE_PROPOSALS: the sizes, types and scales of scores, boxes, anchors and images fit each other"},
    {"N16.1",
     "DETECTION_POSTPROCESSING: there are a background, a class and four numbers for each box, scales and counts are above 0, and "
     "thresholds are 0 or more"},
    {"N17.1", "HEATMAP_MAX_KEYPOINT: maps are square, of at least 2 x 2 places, and there is a box for each"},
    {"N18.1",
     "LSH_PROJECTION: the form is 1, 2 or 3, weights are given where it is 2 alone, one for each row of what is hashed, and a "
     "function has at most 32 bits"},
    {"N19.2", "HASHTABLE_LOOKUP: there are as many keys as values"},
    {"N20.1", "RANDOM_MULTINOMIAL: the number of samples is above 0, and there are two seeds"},
    {"N21.1",
     "DENSIFY: there are two operands, an entry of each list and a format, 0 or 1, for each level, and at most one block for each "
     "axis"},
    {"N21.2", "DENSIFY: the order has the axes in some order, then the blocks in theirs"},
    {"N21.4",
     "DENSIFY: sizes are above 0, blocks are of rising axes, and the segments and indices of a level lie within it, with a value "
     "for each place"},
};

}  // namespace

std::span<const Rule> nnapi_rules() {
  return kNnapiRules;
}

}  // namespace pumice
