// The operator row for nodes that run a user kernel. The importer creates such a node for an operator with a kernel in load(kernels=); its
// attributes contain everything about the kernel.
#include <optional>

#include "core/error.h"
#include "operators/table/row_builders.h"
#include "operators/user/lowerings.h"
#include "operators/user/size_rules.h"

namespace pumice {
namespace {

// Returns the input that a string such as "=2" refers to; nullopt for other strings.
std::optional<size_t> like_input(const std::string& text) {
  if (!text.starts_with('=')) return {};
  return std::stoul(text.substr(1));
}

Shape checked_shape(const ShapeContext& node, size_t output, Shape shape) {
  for (const int64_t size : shape)
    if (size < 0)
      node.fail(node.attributes().text("operator") + ": the shape rule gives " + to_string(shape) + " for output " +
                std::to_string(output));
  return shape;
}

std::vector<std::string> texts(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.all().find(name);
  return found == attributes.all().end() ? std::vector<std::string>() : std::get<std::vector<std::string>>(found->second);
}

AttributeSchema text_list(std::string_view name) {
  return {name, AttributeKind::texts, std::vector<std::string>()};
}

}  // namespace

void shape_of_user_kernel(ShapeContext& node) {
  RuleSizes sizes;
  for (size_t i = 0; i < node.input_count(); ++i)
    if (node.has(i)) sizes.add('x', i, node.input(i).shape);
  const auto shapes = texts(node.attributes(), "shapes"), dtypes = texts(node.attributes(), "dtypes");
  for (size_t j = 0; j < shapes.size() && j < dtypes.size(); ++j) {
    const auto same_shape = like_input(shapes[j]), same_dtype = like_input(dtypes[j]);
    const DType dtype = same_dtype ? node.input(*same_dtype).dtype : dtype_from_name(dtypes[j]);
    try {
      node.output(j, dtype, same_shape ? node.input(*same_shape).shape : checked_shape(node, j, sizes.list(shapes[j])));
    } catch (const GraphError&) {
      throw;
    } catch (const Error& error) {
      node.fail(node.attributes().text("operator") + ": the shape rule of output " + std::to_string(j) + " fails: " + error.what());
    }
  }
}

Rows user_rows() {
  ValueRole inputs = variadic_value("inputs", kAny);
  inputs.optional = true;
  return {{.name = "pumice::Kernel",
           .skeleton = Skeleton::user,
           .schema = {.inputs = {inputs},
                      .outputs = {variadic_value("outputs", kAny)},
                      .attributes = {required("operator", AttributeKind::text),
                                     required("kernel", AttributeKind::text),
                                     required("source", AttributeKind::text),
                                     text("path", ""),
                                     text_list("include_names"),
                                     text_list("include_texts"),
                                     text_list("folders"),
                                     text_list("macros"),
                                     text_list("constants"),
                                     {"local_size", AttributeKind::integers, std::vector<int64_t>()},
                                     text_list("reads"),
                                     text_list("writes"),
                                     text_list("shapes"),
                                     text_list("dtypes"),
                                     text_list("numbers"),
                                     text("launch", "threads"),
                                     text("size", "y0_n")}},
           .shape = shape_of_user_kernel,
           .lower = lower_user_kernel,
           .strides = RowStrides::packed}};
}

}  // namespace pumice
