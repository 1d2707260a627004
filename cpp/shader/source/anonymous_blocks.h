// Finds names that collide between blocks without an instance name, whose members have global scope.
#pragma once

#include <string>
#include <string_view>

#include "shader/source/source_set.h"

namespace pumice {

// Describes the member that this block shares with another block without an instance name, and that block's location: ": 'k' is a member of
// block 'A' in kernel:1, too; ...". Empty if none is found, for example if a macro generates the block.
std::string describe_shared_member(const SourceSet& sources, std::string_view block);

}  // namespace pumice
