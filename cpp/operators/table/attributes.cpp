#include "operators/table/attributes.h"

#include "core/error.h"

namespace pumice {
namespace {

std::string_view get_kind_name(const AttributeValue& value) {
  return get_attribute_kind_name(static_cast<AttributeKind>(value.index()));
}

// Returns the attribute as T, or null if it is not set.
template <typename T>
const T* find_attribute(const std::map<std::string, AttributeValue, std::less<>>& values, std::string_view name) {
  const auto found = values.find(name);
  if (found == values.end()) return nullptr;
  if (const T* value = std::get_if<T>(&found->second)) return value;
  throw GraphError(std::string(name), "attribute '" + std::string(name) + "' must be " + std::string(get_kind_name(AttributeValue(T{}))) +
                                          "; given " + std::string(get_kind_name(found->second)));
}

template <typename T>
T get_attribute_or(const std::map<std::string, AttributeValue, std::less<>>& values, std::string_view name, T fallback) {
  const T* value = find_attribute<T>(values, name);
  return value ? *value : std::move(fallback);
}

}  // namespace

std::string_view get_attribute_kind_name(AttributeKind kind) {
  constexpr std::string_view names[] = {"an integer", "a number", "a string", "integers", "numbers", "strings", "a tensor"};
  return names[static_cast<size_t>(kind)];
}

void Attributes::set(std::string name, AttributeValue value) {
  values_.insert_or_assign(std::move(name), std::move(value));
}

bool Attributes::has(std::string_view name) const {
  return values_.find(name) != values_.end();
}

int64_t Attributes::integer(std::string_view name, int64_t fallback) const {
  return get_attribute_or<int64_t>(values_, name, fallback);
}

double Attributes::real(std::string_view name, double fallback) const {
  return get_attribute_or<double>(values_, name, fallback);
}

std::string Attributes::text(std::string_view name, std::string_view fallback) const {
  return get_attribute_or<std::string>(values_, name, std::string(fallback));
}

std::vector<int64_t> Attributes::integers(std::string_view name, std::vector<int64_t> fallback) const {
  return get_attribute_or<std::vector<int64_t>>(values_, name, std::move(fallback));
}

std::vector<double> Attributes::reals(std::string_view name, std::vector<double> fallback) const {
  return get_attribute_or<std::vector<double>>(values_, name, std::move(fallback));
}

const HostTensor* Attributes::tensor(std::string_view name) const {
  return find_attribute<HostTensor>(values_, name);
}

}  // namespace pumice
