// Builds a Graph from the cached structure of a model file, whose nodes become one engine node each.
#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/mapped_file.h"
#include "graph_nodes.h"

namespace pumice {
namespace {

// The bytes of a file, or of the cache entry itself.
class ConstantFile {
 public:
  explicit ConstantFile(const py::buffer& buffer) : info_(buffer.request()), file_(find_mapped_file(buffer)) {
    owner_ = file_ ? std::shared_ptr<const void>(file_) : keep_alive(buffer);
    bytes_ = get_contiguous_bytes(info_, "build_cached_graph");
  }

  // Returns a tensor that refers to the bytes at `offset`. Throws Error if they are outside the file.
  HostTensor get_tensor(const TensorDesc& desc, int64_t offset) const {
    const size_t size = desc.element_bytes();
    if (offset < 0 || static_cast<size_t>(offset) > bytes_.size() || size > bytes_.size() - static_cast<size_t>(offset))
      throw Error("a constant outside its file");
    HostTensor tensor{desc};
    tensor.data = bytes_.data() + offset;
    tensor.file = file_;
    tensor.owner = owner_;
    return tensor;
  }

 private:
  py::buffer_info info_;
  std::shared_ptr<const MappedFile> file_;
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> bytes_;
};

class CachedGraphBuilder {
 public:
  CachedGraphBuilder(const Record& structure, const py::typing::List<py::object>& files)
      : structure_(structure), graph_(std::make_shared<Graph>(structure["name"].cast<std::string>())) {
    for (const py::handle file : files) files_.emplace_back(file.cast<py::buffer>());
    for (const py::handle constant : structure_["constants"].cast<py::list>()) {
      const auto record = constant.cast<py::sequence>();
      constants_.emplace(record[0].cast<std::string>(), record);
    }
  }

  std::shared_ptr<Graph> build() {
    for (const py::handle input : structure_["inputs"].cast<py::list>()) add_input(input.cast<py::sequence>());
    for (const py::handle node : structure_["nodes"].cast<py::list>()) add_node(node.cast<py::sequence>());
    for (const py::handle output : structure_["outputs"].cast<py::list>()) {
      const auto name = output.cast<py::sequence>()[0].cast<std::string>();
      graph_->output(name, get_value(name));
    }
    graph_->finish();
    return graph_;
  }

 private:
  void add_input(const py::sequence& record) {
    const auto name = record[0].cast<std::string>();
    const auto shape = parse_optional_shape(record[2].cast<std::optional<std::vector<std::optional<Integer>>>>());
    values_[name] = graph_->input(name, parse_dtype(record[1]), shape, record[3].cast<std::vector<std::string>>(), {});
  }

  // Returns the tensor of a constant: [name, dtype, shape, file, offset].
  HostTensor get_tensor(const py::sequence& record) const {
    const auto file = record[3].cast<int64_t>() + 1;  // -1: the cache entry, which is the first of files_
    if (file < 0 || file >= static_cast<int64_t>(files_.size())) throw Error("a constant of an unknown file");
    const TensorDesc desc(parse_dtype(record[1]), parse_sizes(record[2].cast<Integers>(), "shape"));
    return files_[static_cast<size_t>(file)].get_tensor(desc, record[4].cast<int64_t>());
  }

  ValueId get_value(const std::string& name) {
    if (const auto known = values_.find(name); known != values_.end()) return known->second;
    const auto constant = constants_.find(name);
    if (constant == constants_.end()) throw Error("unknown value '" + name + "'");
    return values_[name] = graph_->constant(copy_if_small(get_tensor(constant->second)), name);
  }

  Attributes parse_cached_attributes(const py::dict& record) const {
    py::dict others;
    std::vector<std::pair<std::string, HostTensor>> tensors;
    for (const auto& [name, value] : record)
      if (py::isinstance<py::dict>(value))
        tensors.emplace_back(name.cast<std::string>(), get_tensor(value.cast<py::dict>()["tensor"].cast<py::sequence>()));
      else
        others[name] = value;
    Attributes attributes = parse_attributes(others);
    for (auto& [name, tensor] : tensors) attributes.set(name, copy_if_small(std::move(tensor)));
    return attributes;
  }

  // Adds a node: [op, name, inputs, outputs, attributes, domain].
  void add_node(const py::sequence& record) {
    const auto domain = record[5].cast<std::string>();
    const std::string op = (domain.empty() ? "" : domain + "::") + record[0].cast<std::string>();
    if (op == "pumice::Kernel") throw Error("a user kernel in a model file");  // it could make the engine read any path
    std::vector<ValueId> inputs;
    for (const std::string& name : record[2].cast<std::vector<std::string>>()) {
      inputs.push_back(name.empty() ? kAbsent : get_value(name));
      // The importer converts nodes that move elements of less than 8 bits.
      if (!name.empty() && is_low_bit(graph_->values()[static_cast<size_t>(inputs.back())].dtype)) throw Error("a low-bit input");
    }
    auto outputs = record[3].cast<std::vector<std::string>>();
    while (!outputs.empty() && outputs.back().empty()) outputs.pop_back();
    const auto results = graph_->add(replace_deprecated_name(op), std::move(inputs), parse_cached_attributes(record[4].cast<py::dict>()),
                                     outputs.size(), record[1].cast<std::string>(), outputs);
    for (size_t i = 0; i < outputs.size(); ++i) values_[outputs[i]] = results[i];
  }

  Record structure_;
  std::shared_ptr<Graph> graph_;
  std::vector<ConstantFile> files_;
  std::map<std::string, py::sequence> constants_;
  std::map<std::string, ValueId> values_;
};

}  // namespace

void bind_cached_graph(py::module_& module) {
  module.def(
      "build_cached_graph",
      [](const Record& structure, const py::typing::List<py::object>& files) { return CachedGraphBuilder(structure, files).build(); },
      py::arg("structure"), py::arg("files"),
      "Return the finished Graph of a cached model whose nodes become one engine node each.\n"
      "structure: as in pumice.importer.load_graph; files: the bytes of the entry's own constants, of the model file, and of its weights "
      "files.\n"
      "Raise an error of any type if the structure is not of this kind.");
}

}  // namespace pumice
