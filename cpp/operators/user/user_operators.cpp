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
std::optional<size_t> parse_input_reference(const std::string& text) {
  if (!text.starts_with('=')) return {};
  return std::stoul(text.substr(1));
}

Shape validate_shape(const ShapeContext& node, size_t output, Shape shape) {
  for (const int64_t size : shape)
    if (size < 0)
      node.fail(node.attributes().text("operator") + ": the shape rule gives " + to_string(shape) + " for output " +
                std::to_string(output));
  return shape;
}

std::vector<std::string> get_strings_attribute(const Attributes& attributes, std::string_view name) {
  const auto found = attributes.all().find(name);
  return found == attributes.all().end() ? std::vector<std::string>() : std::get<std::vector<std::string>>(found->second);
}

AttributeSchema strings_attribute(std::string_view name) {
  return {name, AttributeKind::texts, std::vector<std::string>()};
}

}  // namespace

void infer_user_kernel_shape(ShapeContext& node) {
  SizeVariables sizes;
  for (size_t i = 0; i < node.input_count(); ++i)
    if (node.has(i)) sizes.add('x', i, node.input(i).shape);
  const auto shapes = get_strings_attribute(node.attributes(), "shapes"), dtypes = get_strings_attribute(node.attributes(), "dtypes");
  for (size_t j = 0; j < shapes.size() && j < dtypes.size(); ++j) {
    const auto same_shape = parse_input_reference(shapes[j]), same_dtype = parse_input_reference(dtypes[j]);
    const DType dtype = same_dtype ? node.input(*same_dtype).dtype : dtype_from_name(dtypes[j]);
    try {
      node.output(j, dtype, same_shape ? node.input(*same_shape).shape : validate_shape(node, j, sizes.evaluate_list(shapes[j])));
    } catch (const GraphError&) {
      throw;
    } catch (const Error& error) {
      node.fail(node.attributes().text("operator") + ": the shape rule of output " + std::to_string(j) + " fails: " + error.what());
    }
  }
}

OperatorRows define_user_operators() {
  ValueRole inputs = variadic_role("inputs", kAny);
  inputs.optional = true;
  return {{.name = "pumice::Kernel",
           .skeleton = KernelKind::user,
           .schema = {.inputs = {inputs},
                      .outputs = {variadic_role("outputs", kAny)},
                      .attributes = {required_attribute("operator", AttributeKind::text),
                                     required_attribute("kernel", AttributeKind::text),
                                     required_attribute("source", AttributeKind::text),
                                     text_attribute("path", ""),
                                     strings_attribute("include_names"),
                                     strings_attribute("include_texts"),
                                     strings_attribute("folders"),
                                     strings_attribute("macros"),
                                     strings_attribute("constants"),
                                     {"local_size", AttributeKind::integers, std::vector<int64_t>()},
                                     strings_attribute("reads"),
                                     strings_attribute("writes"),
                                     strings_attribute("shapes"),
                                     strings_attribute("dtypes"),
                                     strings_attribute("numbers"),
                                     text_attribute("launch", "threads"),
                                     text_attribute("size", "y0_n")}},
           .shape = infer_user_kernel_shape,
           .lower = lower_user_kernel,
           .strides = StrideSupport::packed}};
}

}  // namespace pumice
